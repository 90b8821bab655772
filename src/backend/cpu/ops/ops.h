// From specs to this backend's ops.
#pragma once
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/context.h"

namespace ada::backend::cpu {

// The op of a layer. Each spec of OpSpec but the products' (matmul/matmul_op.h) has a
// specialization, next to its op: what is missing does not link.
template <class Spec>
std::unique_ptr<Op> MakeOp(const Context& context, const Spec& spec);
template <class Function>
std::unique_ptr<Op> MakeOp(const Context& context, const ActivationSpec<Function>& spec);

std::unique_ptr<InputOp> MakeInputOp(const Context&, const InputSpec&);
std::unique_ptr<LossOp> MakeLossOp(const Context&, const ClassLossSpec&);
std::unique_ptr<LossOp> MakeLossOp(const Context&, const PixelLossSpec&);
std::unique_ptr<LossOp> MakeLossOp(const Context&, const MultiboxLossSpec&);
std::unique_ptr<UpdateOp> MakeUpdateOp(const Context&, const UpdateRule&, std::vector<UpdateSlot>,
                                       std::vector<WatchedRounding>);
std::unique_ptr<AverageOp> MakeAverageOp(const Context&, std::vector<AverageSlot>);

}  // namespace ada::backend::cpu
