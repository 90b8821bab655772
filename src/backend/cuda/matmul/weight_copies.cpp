// See weight_copies.h.
#include "backend/cuda/matmul/weight_copies.h"

#include <limits>

#include "backend/cuda/kernels/matmul.h"
#include "backend/cuda/kernels/operands.h"
#include "backend/cuda/launch.h"
#include "error.h"

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
  RefuseScales(operand_);
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

namespace {

Storage StorageOf(const MatmulSpec& spec) {
  return spec.w_style.per_tensor_scale != nullptr ? Storage::kF32 : StorageFor(spec.w_format);
}

}  // namespace

WeightCopies::WeightCopies(const Context& context, const OperandPlaces& places,
                           const MatmulSpec& spec, TensorMoments* moments)
    : context_(context),
      number_(context.weight_refresh.NextNumber()),
      master_(spec.w),
      order_{spec.w.shape.c, spec.w.shape.h * spec.w.shape.w},
      storage_(StorageOf(spec)),
      stats_(RoundingStats::OfParameter(context, spec.w_format, Storage::kF32, spec.w.shape.numel(),
                                        spec.w_style, spec.w_stats, moments)) {
  ADA_CHECK(spec.w.shape.numel() <= std::numeric_limits<std::uint32_t>::max());
  if (stats_.rounds()) rounded_ = context.Allocate<float>(spec.w.shape.numel());
  const auto rounds = [&](Operand operand) { return spec.operands[IndexOf(operand)].rounds; };
  if (rounds(Operand::kForwardW)) forward_.emplace(context, places, spec, Operand::kForwardW);
  if (rounds(Operand::kDxW) && spec.dx) data_.emplace(context, places, spec, Operand::kDxW);
}

const WeightOperand* WeightCopies::RoundedOperand(Operand operand) const {
  const std::optional<WeightOperand>& own = operand == Operand::kForwardW ? forward_ : data_;
  return own ? &*own : nullptr;
}

// Late copies, and those of operands that round, are not in the table: launches of their own pack
// them.
WeightTensor WeightCopies::Describe(const Pass& pass) const {
  WeightTensor tensor;
  tensor.master = SpanOf(master_), tensor.rounded = rounded_;
  tensor.how = stats_.For(pass);
  if (rounded_ == nullptr) tensor.how.grid.exact = true, tensor.how.stochastic = false;
  tensor.values = master_.shape.numel(), tensor.order = order_;
  for (const Copy& copy : copies_) {
    if (copy.late || copy.of != nullptr) continue;
    ADA_CHECK(tensor.copy_count < WeightTensor::kMostCopies);
    tensor.copies[tensor.copy_count++] = copy.span;
  }
  return tensor;
}

void WeightCopies::RefreshOperands(const Pass& pass) const {
  for (const Operand operand : {Operand::kForwardW, Operand::kDxW})
    if (const WeightOperand* own = RoundedOperand(operand)) own->Round(pass, plain());
  for (const Copy& copy : copies_)
    if (copy.of != nullptr && !copy.late) Pack(copy);
}

// One copy for each storage and operand, made when it is first asked for.
TensorSpan WeightCopies::Packed(Storage storage, Operand operand) {
  const WeightOperand* const of = RoundedOperand(operand);
  // Without taps the two orders are one.
  if (storage == Storage::kF32 && order_.taps == 1)
    return {const_cast<float*>(of != nullptr ? of->values() : plain()), Storage::kF32};
  for (const Copy& copy : copies_) {
    if (copy.span.storage != storage || copy.of != of) continue;
    if (copy.late) Pack(copy);
    return copy.span;
  }
  const std::int64_t bytes = master_.shape.numel() * static_cast<std::int64_t>(BytesOf(storage));
  copies_.push_back({{context_.Allocate<std::byte>(bytes), storage}, sealed_, of});
  Pack(copies_.back());
  return copies_.back().span;
}

void WeightCopies::Pack(const Copy& copy) const {
  const float* const from = copy.of != nullptr ? copy.of->values() : plain();
  ForEach(context_.stream, master_.shape.numel(), PackWeights{from, copy.span, order_});
}

}  // namespace ada::backend::cuda
