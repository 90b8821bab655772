// See weight_copies.h.
#include "backend/cuda/matmul/weight_copies.h"

#include <algorithm>
#include <limits>
#include <type_traits>
#include <utility>

#include "backend/cuda/kernels/matmul.h"
#include "backend/cuda/kernels/operands.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/rounding/rounding_stats.h"
#include "error.h"
#include "number/tensor.h"

namespace ada::backend::cuda {

void WeightRefresh::Refresh(const RefreshedWeights& weights, const Pass& pass) {
  if (in_one_launch_)
    waiting_.push_back(&weights);
  else
    Launch({&weights}, pass);
}

void WeightRefresh::InOneLaunch(const Pass& pass, const std::function<void()>& body) {
  in_one_launch_ = true;
  try {
    body();
  } catch (...) {
    in_one_launch_ = false;
    waiting_.clear();
    throw;
  }
  in_one_launch_ = false;
  const std::vector<const RefreshedWeights*> all = std::exchange(waiting_, {});
  Launch(all, pass);
}

// The kernel is compiled for each level; the launch takes the most that one of its tensors asks
// for.
void WeightRefresh::Launch(const std::vector<const RefreshedWeights*>& all, const Pass& pass) {
  std::vector<std::int64_t> numbers;
  for (const RefreshedWeights* weights : all) numbers.push_back(weights->number());
  const Key key{numbers, pass.training, pass.count, pass.bins};
  auto found = tables_.find(key);
  if (found == tables_.end()) found = tables_.emplace(key, Make(all, pass)).first;
  const Table& table = found->second;
  AtStatsLevel(table.level, [&](auto level) {
    using Kernel = RefreshWeightsKernel<decltype(level)::value>;
    cuda::Launch(stream_, Kernel{table.tensors, table.tensor_of_block}, table.blocks);
  });
  for (const RefreshedWeights* weights : all) weights->RefreshOperands(pass);
}

// Blocks are numbered through all tensors; one that is neither rounded, packed nor measured has
// none.
WeightRefresh::Table WeightRefresh::Make(const std::vector<const RefreshedWeights*>& all,
                                         const Pass& pass) {
  Table table;
  std::vector<WeightTensor> tensors;
  std::vector<std::int32_t> tensor_of_block;
  for (const RefreshedWeights* weights : all) {
    WeightTensor tensor = weights->Describe(pass);
    const bool idle = tensor.rounded == nullptr && tensor.copy_count == 0;
    if (idle && tensor.how.totals == nullptr) continue;
    const FlatBlocks flat = FlatBlocksOf(tensor.values);
    tensor.size = flat.size, tensor.blocks = flat.blocks;
    tensor.first_block = static_cast<int>(tensor_of_block.size());
    tensor_of_block.insert(tensor_of_block.end(), static_cast<std::size_t>(flat.blocks),
                           static_cast<std::int32_t>(tensors.size()));
    table.level = std::max(table.level, weights->Level(pass));
    tensors.push_back(tensor);
  }
  table.blocks = static_cast<int>(tensor_of_block.size());
  table.tensors = Keep(tensors), table.tensor_of_block = Keep(tensor_of_block);
  return table;
}

template <class T>
const T* WeightRefresh::Keep(const std::vector<T>& host) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (host.empty()) return nullptr;
  const std::size_t bytes = host.size() * sizeof(T);
  std::byte* kept = memory_.Allocate(bytes);
  stream_.CopyToDevice(kept, host.data(), bytes);
  return reinterpret_cast<const T*>(kept);
}

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
                  rows_, !spec.w_style.per_tensor_scale && HasValuesOf(kBf16, spec.w_format),
                  stats_);
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
