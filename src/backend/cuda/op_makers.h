// From specs to this backend's ops.
#pragma once
#include <cstddef>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/context.h"

namespace ada::backend::cuda {

// Makes the op of a layer; null: its fusion is declined, as any with `recomputed` is. Batch norms
// compute the moments of x themselves (x_moments is not read); poolings throw ConfigError if a
// window has more positions than 16 bits can represent. Each other spec of OpSpec has a
// specialization, next to its op: a missing one is a linker error.
template <class Spec>
std::unique_ptr<Op> MakeOp(const Context& context, const Spec& spec);
// The op of a spec that has LayerValues (backend/values/layer_values.h).
std::unique_ptr<Op> MakeValueOp(const Context& context, const OpSpec& spec);

std::unique_ptr<InputOp> MakeInputOp(const Context&, const InputSpec&);
std::unique_ptr<LossOp> MakeLossOp(const Context&, const ClassLossSpec&);
std::unique_ptr<LossOp> MakeLossOp(const Context&, const PixelLossSpec&);
std::unique_ptr<LossOp> MakeLossOp(const Context&, const MultiboxLossSpec&);
std::unique_ptr<UpdateOp> MakeUpdateOp(const Context&, const UpdateRule&,
                                       const std::vector<UpdateSlot>&,
                                       const std::vector<WatchedRounding>&);
std::unique_ptr<AverageOp> MakeAverageOp(const Context&, const std::vector<AverageSlot>&);
// Works in a context that has a link.
std::unique_ptr<GradientSums> MakeGradientSumsOp(const Context&, const GradientSumsSpec&);

// A data set in device memory: bytes go there once, an order once an epoch, and one kernel makes
// each batch. Null where ResidentBytes is 0.
std::unique_ptr<ImageSource> MakeImageSourceOp(const Context&, const ImageSourceSpec&);
// Bytes of device memory that the data set would need; 0: that is more than half of the free
// memory, of which the rest is for the training step.
std::size_t ResidentBytes(const Context&, const ImageSourceSpec&);

}  // namespace ada::backend::cuda
