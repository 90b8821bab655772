// See weight_operand.h.
#include "backend/cuda/matmul/weight_operand.h"

#include "backend/cuda/kernels/matmul.h"
#include "backend/cuda/kernels/operands.h"
#include "backend/cuda/launch.h"

namespace ada::backend::cuda {
namespace {

RoundingStats StatsOf(const Context& context, std::int64_t numel, const OperandRounding& operand) {
  RoundingStyle style = operand.style;
  if (operand.block) style.stochastic = false;
  return RoundingStats::OfParameter(context, operand.block ? kFp32 : operand.format, Storage::kF32,
                                    numel, style, operand.stats);
}

}  // namespace

WeightOperand::WeightOperand(const Context& context, const OperandPlaces& places,
                             const MatmulSpec& spec, Operand which)
    : context_(context),
      operand_(spec.operands[IndexOf(which)]),
      numel_(spec.w.shape.numel()),
      rows_(spec.w.shape.n),
      stats_(StatsOf(context, numel_, operand_)),
      values_(context.Allocate<float>(numel_)) {
  RefuseRowScales(operand_);
  RefuseTransform(operand_, which);
  if (operand_.current != nullptr) amax_ = context.Allocate<std::uint32_t>(1);
  if (!operand_.block) return;
  blocks_.emplace(context, operand_,
                  RowsOfWeights(places.linear, places.transposed, places.groups, spec.w.shape,
                                operand_.laid_as.value_or(which), operand_.block->square),
                  rows_, spec.w_format == kBf16, stats_);
  context.scratch.Reserve(blocks_->work_bytes());
}

// Weights are the same in all processes: no magnitude is joined.
void WeightOperand::Round(const Pass& pass, const float* weights) const {
  const TensorSpan in{const_cast<float*>(weights), Storage::kF32}, out{values_, Storage::kF32};
  if (blocks_) return blocks_->Round(pass, in, rows_, 0, nullptr, out, context_.scratch.data());
  if (operand_.current != nullptr) {
    FindLargest(context_.stream, in, numel_, amax_);
    ForEach(context_.stream, 1, SetCurrentScale{operand_.rule, operand_.current, amax_});
  }
  stats_.Round(pass, out, StoredValues{in});
}

}  // namespace ada::backend::cuda
