// Ops whose values are computed one by one: input, relu, add, dropout, shortcut, flatten, casts,
// and sums of branches.
#pragma once
#include <memory>

#include "backend/backend.h"
#include "backend/cuda/context.h"

namespace ada::backend::cuda {

std::unique_ptr<InputOp> MakeInputOp(const Context&, const InputSpec&);
std::unique_ptr<Op> MakeReluOp(const Context&, const ReluSpec&);
std::unique_ptr<Op> MakeAddOp(const Context&, const AddSpec&);
std::unique_ptr<Op> MakeDropoutOp(const Context&, const DropoutSpec&);
std::unique_ptr<Op> MakeShortcutOp(const Context&, const ShortcutSpec&);
std::unique_ptr<Op> MakeFlattenOp(const Context&, const FlattenSpec&);
std::unique_ptr<Op> MakeScaleOp(const Context&, const ScaleSpec&);
std::unique_ptr<Op> MakeBranchSumOp(const Context&, const BranchSumSpec&);

}  // namespace ada::backend::cuda
