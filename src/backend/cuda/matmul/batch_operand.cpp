// See matmul_plans.h.
#include <algorithm>

#include "backend/cuda/kernels/matmul.h"
#include "backend/cuda/kernels/operands.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/link.h"
#include "backend/cuda/matmul/matmul_plans.h"
#include "backend/hadamard.h"
#include "error.h"
#include "number/tensor.h"

namespace ada::backend::cuda {
namespace {

// Blocks are not known to it: it measures what they are made of.
RoundingStats StatsOf(const Context& context, const Tensor& carrier, const float* scale,
                      const OperandRounding& operand) {
  Gradient rounded;
  rounded.tensor = carrier, rounded.scale = const_cast<float*>(scale);
  rounded.tensor.format = operand.block ? kFp32 : operand.format;
  rounded.stats = operand.stats, rounded.style = operand.style;
  if (operand.block) rounded.tensor.storage = Storage::kF32, rounded.style.stochastic = false;
  return operand.stats != nullptr ? RoundingStats(context, rounded)
                                  : RoundingStats(context, rounded.tensor, rounded.style, nullptr);
}

}  // namespace

BatchOperand::BatchOperand(const Context& context, const OperandPlaces& places, Operand which,
                           const Tensor& stored, const float* scale, const OperandRounding& operand,
                           Storage carrier)
    : context_(context),
      stored_(stored),
      carrier_{stored.shape, operand.block ? kFp32 : operand.format, carrier, stored.data},
      operand_(operand),
      transform_values_(places.pointwise ? stored.shape.c : stored.shape.per_image()),
      stats_(StatsOf(context, carrier_, scale, operand)) {
  RefuseScales(operand);
  RefuseTransform(operand, which);
  if (operand.block) {
    const OperandRows rows = RowsOfBatch(places.linear, places.groups, stored.shape,
                                         operand.laid_as.value_or(which), operand.block->square);
    row_values_ = rows.width;
    blocks_.emplace(context, operand, rows, stored.shape.numel() / row_values_,
                    IsKeptInBf16(stored.format, stored.storage), stats_);
    if (operand.block->row_scaled && rows.down && RulesLink(context.link) != nullptr)
      throw ConfigError(
          "precision.operands: rows of dw's operands go through the images of all processes, whose "
          "scales (tensor_scale: row) are not joined on GPUs; use tensor_scale: true there, or one "
          "process");
    if (TakenAsPyTorch(places.linear, stored.shape, rows)) blocks_->TakeAsPyTorch(stored.shape.c);
  }
  if (!asks_amax()) return;
  amax_ = context.Allocate<std::uint32_t>(1);
  if (RulesLink(context.link) == nullptr) return;
  amax_of_all_ = context.Allocate<std::uint32_t>(1);
  amaxes_ = context.Allocate<std::uint32_t>(context.link->ranks());
}

bool BatchOperand::asks_amax() const {
  return blocks_ ? blocks_->asks_amax() : operand_.current != nullptr;
}

std::size_t BatchOperand::transformed_bytes() const {
  return operand_.hadamard
             ? Aligned(static_cast<std::size_t>(stored_.shape.numel()) * sizeof(float))
             : 0;
}

std::size_t BatchOperand::work_bytes() const {
  return transformed_bytes() + (blocks_ ? blocks_->work_bytes() : 0);
}

// A transform is made each time it is asked for: JoinAmax and Make may run in two streams, with
// scratch memory of their own.
TensorSpan BatchOperand::Input(Stream& stream, const Pass& pass, std::byte* work) const {
  if (!operand_.hadamard) return SpanOf(stored_);
  const bool bf16 = IsKeptInBf16(stored_.format, stored_.storage);
  const TransformRows transform{SpanOf(stored_),
                                reinterpret_cast<float*>(work),
                                ValuesOf(pass) / transform_values_,
                                transform_values_,
                                kFixedSigns,
                                operand_.hadamard.random,
                                operand_.hadamard.stream,
                                context_.pass,
                                GridOf(bf16 ? kBf16 : kFp32)};
  ForEach(stream, transform.Items(), transform);
  return {work, Storage::kF32};
}

// Messages are asked for by the main stream alone: their order is the same in all processes.
void BatchOperand::JoinAmax(const Context& main, const Pass& pass, std::byte* work) const {
  if (!joins_amax(pass)) return;
  FindLargest(main.stream, Input(main.stream, pass, work), ValuesOf(pass), amax_);
  main.link->AllGatherInStream(amax_, sizeof *amax_, amaxes_);
  ForEach(main.stream, 1, LargestOfProcesses{amaxes_, main.link->ranks(), amax_of_all_});
}

// Where no process shares the tensor its largest magnitude is found within the rounding.
TensorSpan BatchOperand::Make(const Pass& pass, std::byte* memory, std::byte* work) const {
  const TensorSpan in = Input(context_.stream, pass, work);
  const TensorSpan out{memory, carrier_.storage};
  work += transformed_bytes();
  if (!blocks_) {
    RoundValues(pass, in, out);
    return out;
  }
  blocks_->Round(pass, in, ValuesOf(pass) / row_values_, pass.first_row * stored_.shape.per_image(),
                 joins_amax(pass) ? amax_of_all_ : nullptr, out, work);
  return out;
}

void BatchOperand::RoundValues(const Pass& pass, const TensorSpan& in,
                               const TensorSpan& out) const {
  if (operand_.current != nullptr) {
    if (!joins_amax(pass)) FindLargest(context_.stream, in, ValuesOf(pass), amax_);
    ForEach(
        context_.stream, 1,
        SetCurrentScale{operand_.rule, operand_.current, joins_amax(pass) ? amax_of_all_ : amax_});
  }
  stats_.Round(pass, out, StoredValues{in});
}

// Weights are not among them: they are rounded once in a refresh (weight_copies.h).
BatchOperands::BatchOperands(const Context& context, const OperandPlaces& places,
                             const MatmulSpec& spec, MatmulKind kind)
    : stored_{SpanOf(kind == MatmulKind::kData ? spec.dy.tensor : spec.x), SpanOf(spec.dy.tensor)} {
  const bool exists =
      kind == MatmulKind::kForward || (kind == MatmulKind::kData ? spec.dx : spec.dy);
  if (!exists || !Rounds(spec, kind)) return;
  const std::array<Operand, 2> both = BothOperandsOf(kind);
  for (std::size_t i = 0; i < both.size(); ++i) {
    const OperandRounding& rounding = spec.operands[IndexOf(both[i])];
    if (!rounding.rounds || IsWeight(both[i])) continue;
    const bool is_x = both[i] == Operand::kForwardX || both[i] == Operand::kDwX;
    operands_[i].emplace(context, places, both[i], is_x ? spec.x : spec.dy.tensor,
                         is_x ? nullptr : spec.dy.scale, rounding, CarrierOf(spec, kind));
  }
}

std::size_t BatchOperands::carrier_bytes() const {
  std::size_t bytes = 0;
  for (const auto& operand : operands_) bytes += operand ? operand->carrier_bytes() : 0;
  return bytes;
}

std::size_t BatchOperands::work_bytes() const {
  std::size_t bytes = 0;
  for (const auto& operand : operands_)
    if (operand) bytes = std::max(bytes, operand->work_bytes());
  return bytes;
}

BatchOperands::Spans BatchOperands::Make(const Pass& pass, std::byte* scratch) const {
  Spans spans = stored_;
  std::byte* const work = scratch + carrier_bytes();
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    if (!operands_[i]) continue;
    spans[i] = operands_[i]->Make(pass, scratch, work);
    scratch += operands_[i]->carrier_bytes();
  }
  return spans;
}

void BatchOperands::JoinAmax(const Context& main, const Pass& pass) const {
  for (const auto& operand : operands_)
    if (operand) operand->JoinAmax(main, pass, main.scratch.data());
}

}  // namespace ada::backend::cuda
