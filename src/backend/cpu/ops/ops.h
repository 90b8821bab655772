// From specs to this backend's ops.
#pragma once
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/context.h"

namespace ada::backend::cpu {

// The op of a layer. Each other spec of OpSpec but the products' (matmul/matmul_op.h) has a
// specialization, next to its op: what is missing does not link.
template <class Spec>
std::unique_ptr<Op> MakeOp(const Context& context, const Spec& spec);
// The op of a spec that has LayerValues (backend/values/layer_values.h).
std::unique_ptr<Op> MakeValueOp(const Context& context, const OpSpec& spec);

// The ops at the ends of a graph and of a step. All ops keep a copy of `context`, whose pool,
// kernels and scratch memory have to outlive them, and reserve their scratch memory when they are
// made. None is called by two threads at a time: an op shares its work among the pool itself.
std::unique_ptr<InputOp> MakeInputOp(const Context&, const InputSpec&);
std::unique_ptr<LossOp> MakeLossOp(const Context&, const ClassLossSpec&);
std::unique_ptr<LossOp> MakeLossOp(const Context&, const PixelLossSpec&);
std::unique_ptr<LossOp> MakeLossOp(const Context&, const MultiboxLossSpec&);
std::unique_ptr<UpdateOp> MakeUpdateOp(const Context&, const UpdateRule&, std::vector<UpdateSlot>,
                                       std::vector<WatchedRounding>);
std::unique_ptr<AverageOp> MakeAverageOp(const Context&, std::vector<AverageSlot>);

}  // namespace ada::backend::cpu
