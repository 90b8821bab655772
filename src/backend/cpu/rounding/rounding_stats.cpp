// Sums of block results in double; see rounding_stats.h.
#include "backend/cpu/rounding/rounding_stats.h"

#include <algorithm>
#include <bit>

#include "backend/cpu/rounding/blocks.h"
#include "backend/cpu/rounding/count_rounding.h"
#include "backend/decisions.h"
#include "backend/stats_rules.h"
#include "error.h"

namespace ada::backend::cpu {

TensorStats MergeStats(const BlockStats* blocks, std::int64_t count, bool full) {
  TensorStats total;
  std::uint32_t max_bits = 0, min_bits = 0xffffffffu;
  double sum = 0, square = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const BlockStats& b = blocks[i];
    max_bits = std::max(max_bits, b.max_bits);
    min_bits = std::min(min_bits, b.min_bits);
    total.numel += b.values;
    total.zeros_before += b.zeros;
    total.zeros_after += b.zeros_after;
    total.underflow += b.underflow;
    total.below_min += b.below_min;
    total.subnormal += b.subnormal;
    total.overflow += b.overflow;
    total.inf += b.inf;
    total.nan += b.nan;
    total.above_edge += b.above_edge;
    sum += b.sum;
    square += b.sum_square;
    total.l1 += b.l1;
  }
  total.max_abs = std::bit_cast<float>(max_bits);
  total.full = full;
  if (full && total.numel > 0) FinishStats(sum, square, min_bits, total);
  return total;
}

TensorMoments MergeMoments(const BlockStats* blocks, std::int64_t count, bool size_only) {
  double sum = 0, square = 0, values = 0;
  float min = 0, max = 0;
  std::uint32_t min_bits = 0xffffffffu;
  if (count > 0) min = blocks[0].rounded_min, max = blocks[0].rounded_max;
  for (std::int64_t i = 0; i < count; ++i) {
    sum += blocks[i].rounded_sum;
    square += blocks[i].rounded_square;
    values += static_cast<double>(blocks[i].values);
    min = std::min(min, blocks[i].rounded_min);
    max = std::max(max, blocks[i].rounded_max);
    min_bits = std::min(min_bits, blocks[i].rounded_min_bits);
  }
  return MomentsOf(values, sum, square, min, max, min_bits, size_only);
}

ExponentBins MergeBins(const BlockBins* blocks, std::int64_t count, float scale) {
  ExponentBins total;
  std::int64_t* const bins = &total[BlockBins::kLowest - Split(scale).exponent];
  for (std::int64_t i = 0; i < count; ++i) {
    const BlockBins& b = blocks[i];
    for (int k = 0; k < BlockBins::kExponents; ++k) bins[k] += b.counts[k];
    total.zeros += b.zeros, total.inf += b.inf, total.nan += b.nan;
  }
  return total;
}

Rounding RoundOnly(const NumberFormat& format) {
  Rounding rounding;
  rounding.format = format;
  return rounding;
}

RoundingStats::RoundingStats(const Tensor& tensor, const RoundingStyle& style, TensorStats* stats,
                             TensorMoments* moments, int images)
    : format_(tensor.format), style_(style), stats_(stats), moments_(moments) {
  if (!tensor) return;
  ADA_CHECK(style.per_tensor_scale == nullptr || tensor.storage == Storage::kF32);
  images_ = images > 0 ? images : BlockImages(tensor.shape);
  block_values_ = images_ * tensor.shape.per_image();
  MakeBlocks(BlockCount(tensor.shape.n, images_));
}

RoundingStats::RoundingStats(const Gradient& g, int images)
    : RoundingStats(RoundedTensorOf(g), RoundingStyleOf(g), g.stats, g.moments, images) {
  scale_ = g.scale, size_only_ = !g.all_moments;
}

RoundingStats RoundingStats::OfParameter(const NumberFormat& format, std::int64_t numel,
                                         const RoundingStyle& style, TensorStats* stats,
                                         TensorMoments* moments) {
  RoundingStats made;
  made.format_ = format, made.style_ = style;
  made.stats_ = stats, made.moments_ = moments;
  made.block_values_ = kSegment;
  made.MakeBlocks(Segments(numel));
  return made;
}

void RoundingStats::MakeBlocks(std::int64_t count) {
  if (wanted()) blocks_.resize(static_cast<std::size_t>(count));
  if (stats_ != nullptr && style_.bins != nullptr) bins_.resize(static_cast<std::size_t>(count));
}

Rounding RoundingStats::For(const Pass& pass, std::int64_t block) {
  Rounding rounding = RoundOnly(format_);
  if (style_.per_tensor_scale != nullptr) rounding.scale = style_.per_tensor_scale->scale;
  if (style_.stochastic && pass.training) {
    rounding.stochastic = true;
    rounding.key = pass.seed ^ style_.stream, rounding.draw = pass.draw;
    const std::int64_t before = images_ > 0 ? pass.first_row * (block_values_ / images_) : 0;
    rounding.first = static_cast<std::uint64_t>(before + block * block_values_);
  }
  if (!wanted()) return rounding;
  ADA_CHECK(block < static_cast<std::int64_t>(blocks_.size()));
  rounding.count = Counts(pass, style_, stats_);
  rounding.moments = moments_ != nullptr, rounding.size_only = size_only_;
  rounding.edge = pass.edge;
  rounding.stats = &blocks_[static_cast<std::size_t>(block)];
  if (FillsBins(pass, style_, stats_)) {
    rounding.bins = &bins_[static_cast<std::size_t>(block)];
    rounding.bins_mantissa = Split(carried()).mantissa;
  }
  return rounding;
}

void RoundingStats::RoundInPlace(const Kernels& kernels, const Pass& pass, std::int64_t block,
                                 float* values, std::int64_t n) {
  const TensorSpan span{values, Storage::kF32};
  const Rounding rounding = For(pass, block);
  if (rounds())
    kernels.round(values, 1.0f, span, n, rounding);
  else if (wanted())
    kernels.inspect(span, n, rounding);
}

void RoundingStats::Finish(const Pass& pass) {
  if (!wanted()) return;
  const std::int64_t blocks =
      images_ > 0 ? BlockCount(pass.rows, images_) : static_cast<std::int64_t>(blocks_.size());
  const TensorStats stats = MergeStats(blocks_.data(), blocks, FillsStats(pass, style_));
  max_abs_ = stats.max_abs;
  if (stats_ != nullptr) *stats_ = stats;
  if (moments_ != nullptr) *moments_ = MergeMoments(blocks_.data(), blocks, size_only_);
  if (FillsBins(pass, style_, stats_)) *style_.bins = MergeBins(bins_.data(), blocks, carried());
}

// Blocks of a fixed size, merged in their order.
TensorStats CountRounding(const float* x, std::int64_t n, float factor, const NumberFormat& format,
                          TensorMoments* moments) {
  constexpr std::int64_t kBlock = 16384;
  const Kernels& kernels = SelectKernels();
  std::vector<float> rounded(static_cast<std::size_t>(std::min(n, kBlock)));
  std::vector<BlockStats> blocks;
  for (std::int64_t first = 0; first < n; first += kBlock) {
    Rounding rounding;
    rounding.format = format;
    rounding.count = true;
    rounding.moments = moments != nullptr;
    rounding.stats = &blocks.emplace_back();
    kernels.round(x + first, factor, {rounded.data(), Storage::kF32}, std::min(kBlock, n - first),
                  rounding);
  }
  const auto count = static_cast<std::int64_t>(blocks.size());
  if (moments != nullptr) *moments = MergeMoments(blocks.data(), count);
  return MergeStats(blocks.data(), count, true);
}

}  // namespace ada::backend::cpu
