// The ops that the backend makes, each in a file of its own.
#pragma once
#include <cstddef>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/context.h"

namespace ada::backend::cuda {

std::unique_ptr<InputOp> MakeInputOp(const Context&, const InputSpec&);
// Null where `recomputed` is set: this fusion is declined. A batch norm takes the moments of x
// itself (x_moments is not read).
std::unique_ptr<Op> MakeConv2dOp(const Context&, const Conv2dSpec&);
std::unique_ptr<Op> MakeLinearOp(const Context&, const LinearSpec&);
std::unique_ptr<Op> MakeBatchNormOp(const Context&, const BatchNormSpec&);
std::unique_ptr<Op> MakeReluOp(const Context&, const ReluSpec&);
// Throws ConfigError where a window has more positions than 16 bits can tell apart.
std::unique_ptr<Op> MakeMaxPoolOp(const Context&, const MaxPoolSpec&);
std::unique_ptr<Op> MakeAvgPoolOp(const Context&, const AvgPoolSpec&);
std::unique_ptr<Op> MakeAddOp(const Context&, const AddSpec&);
std::unique_ptr<Op> MakeShortcutOp(const Context&, const ShortcutSpec&);
std::unique_ptr<Op> MakeFlattenOp(const Context&, const FlattenSpec&);
std::unique_ptr<Op> MakeDropoutOp(const Context&, const DropoutSpec&);
std::unique_ptr<Op> MakeScaleOp(const Context&, const ScaleSpec&);
std::unique_ptr<Op> MakeBranchSumOp(const Context&, const BranchSumSpec&);
std::unique_ptr<LossOp> MakeLossOp(const Context&, const LossSpec&);
std::unique_ptr<UpdateOp> MakeUpdateOp(const Context&, const UpdateRule&,
                                       const std::vector<UpdateSlot>&,
                                       const std::vector<WatchedRounding>&);

// A data set in device memory: bytes go there once, an order once an epoch, and one kernel makes
// each batch. Null where ResidentBytes is 0.
std::unique_ptr<ImageSource> MakeImageSourceOp(const Context&, const ImageSourceSpec&);
// Bytes of device memory that the data set would take; 0: more than half of what is free, and the
// rest is for what a step needs.
std::size_t ResidentBytes(const Context&, const ImageSourceSpec&);

}  // namespace ada::backend::cuda
