// The ops that the backend makes beside products (products/product_op.h).
#pragma once
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/context.h"

namespace ada::backend::cpu {

std::unique_ptr<InputOp> MakeInputOp(const Context&, const InputSpec&);
std::unique_ptr<Op> MakeBatchNormOp(const Context&, const BatchNormSpec&);
std::unique_ptr<Op> MakeReluOp(const Context&, const ReluSpec&);
std::unique_ptr<Op> MakeAddOp(const Context&, const AddSpec&);
std::unique_ptr<Op> MakeDropoutOp(const Context&, const DropoutSpec&);
std::unique_ptr<Op> MakeShortcutOp(const Context&, const ShortcutSpec&);
std::unique_ptr<Op> MakeFlattenOp(const Context&, const FlattenSpec&);
std::unique_ptr<Op> MakeMaxPoolOp(const Context&, const MaxPoolSpec&);
std::unique_ptr<Op> MakeAvgPoolOp(const Context&, const AvgPoolSpec&);
std::unique_ptr<Op> MakeScaleOp(const Context&, const ScaleSpec&);
std::unique_ptr<Op> MakeBranchSumOp(const Context&, const BranchSumSpec&);
std::unique_ptr<LossOp> MakeLossOp(const Context&, const LossSpec&);
std::unique_ptr<UpdateOp> MakeUpdateOp(const Context&, const UpdateRule&, std::vector<UpdateSlot>,
                                       std::vector<WatchedRounding>);

}  // namespace ada::backend::cpu
