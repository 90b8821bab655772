// Sums of block results in double; see merge.h.
#include "backend/cpu/ops/merge.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "backend/cpu/ops/blocks.h"
#include "core/error.h"

namespace ada::backend::cpu {
namespace {

// The smallest non-zero finite magnitude, of bits minus 1; 0 where there is none.
float SmallestOf(std::uint32_t min_bits) {
  constexpr std::uint32_t kInfinity = 0x7f800000u;
  return min_bits >= kInfinity - 1 ? 0.0f : std::bit_cast<float>(min_bits + 1);
}

// A positive, finite scale as mantissa * 2^exponent, 1 <= mantissa < 2. Others belong to steps in
// which nothing is finite: as 1.
struct SplitScale {
  explicit SplitScale(float scale) {
    if (!(scale > 0) || !std::isfinite(scale)) return;
    mantissa = 2 * std::frexp(scale, &exponent);
    --exponent;
  }
  float mantissa = 1;
  int exponent = 0;
};

}  // namespace

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
  if (!full || total.numel == 0) return total;
  const auto n = static_cast<double>(total.numel);
  total.zeros_after = total.zeros_before + total.underflow;
  total.min_abs = SmallestOf(min_bits);
  total.mean = sum / n;
  const double variance = square / n - total.mean * total.mean;
  total.std = std::sqrt(variance < 0 ? 0 : variance);
  total.l2 = std::sqrt(square);
  return total;
}

TensorMoments MergeMoments(const BlockStats* blocks, std::int64_t count, bool size_only) {
  double sum = 0, square = 0, values = 0;
  TensorMoments moments;
  std::uint32_t min_bits = 0xffffffffu;
  if (count > 0) moments.min = blocks[0].rounded_min, moments.max = blocks[0].rounded_max;
  for (std::int64_t i = 0; i < count; ++i) {
    sum += blocks[i].rounded_sum;
    square += blocks[i].rounded_square;
    values += static_cast<double>(blocks[i].values);
    moments.min = std::min(moments.min, blocks[i].rounded_min);
    moments.max = std::max(moments.max, blocks[i].rounded_max);
    min_bits = std::min(min_bits, blocks[i].rounded_min_bits);
  }
  moments.mean_square = values > 0 ? square / values : 0;
  if (size_only) {
    moments.max = std::max(std::fabs(moments.min), std::fabs(moments.max));
    moments.min = -moments.max;
    return moments;
  }
  moments.min_abs = SmallestOf(min_bits);
  moments.mean = values > 0 ? sum / values : 0;
  return moments;
}

ExponentBins MergeBins(const BlockBins* blocks, std::int64_t count, float scale) {
  ExponentBins total;
  const int first = BlockBins::kLowest - SplitScale(scale).exponent;
  for (std::int64_t i = 0; i < count; ++i) {
    const BlockBins& b = blocks[i];
    for (int k = 0; k < BlockBins::kCount; ++k)
      if (b.counts[k] != 0) total[first + k] += b.counts[k];
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
  ADA_CHECK(style.own_scale == nullptr || tensor.storage == Storage::kF32);
  images_ = images > 0 ? images : BlockImages(tensor.shape);
  block_values_ = images_ * tensor.shape.per_image();
  MakeBlocks(BlockCount(tensor.shape.n, images_));
}

RoundingStats::RoundingStats(const Gradient& g)
    : RoundingStats(g.tensor, g.style, g.stats, g.moments) {
  scale_ = g.scale, size_only_ = !g.all_moments;
  if (g.stats != nullptr) return;
  style_ = RoundingStyle{};
  // In fp32 they may lie on a grid that has a scale of its own. 16 bits hold what they hold.
  if (g.tensor.storage == Storage::kF32) format_ = kFp32;
}

RoundingStats RoundingStats::OfParameter(const NumberFormat& format, std::int64_t numel,
                                         const RoundingStyle& style, TensorStats* stats,
                                         TensorMoments* moments) {
  RoundingStats notes;
  notes.format_ = format, notes.style_ = style;
  notes.stats_ = stats, notes.moments_ = moments;
  notes.block_values_ = kSegment;
  notes.MakeBlocks(Segments(numel));
  return notes;
}

void RoundingStats::MakeBlocks(std::int64_t count) {
  if (wanted()) blocks_.resize(static_cast<std::size_t>(count));
  if (stats_ != nullptr && style_.bins != nullptr) bins_.resize(static_cast<std::size_t>(count));
}

Rounding RoundingStats::For(const Pass& pass, std::int64_t block) {
  Rounding rounding = RoundOnly(format_);
  if (style_.own_scale != nullptr) rounding.scale = style_.own_scale->scale;
  if (style_.stochastic && pass.training) {
    rounding.stochastic = true;
    rounding.key = pass.seed ^ style_.stream, rounding.draw = pass.draw;
    rounding.first = static_cast<std::uint64_t>(block * block_values_);
  }
  if (!wanted()) return rounding;
  ADA_CHECK(block < static_cast<std::int64_t>(blocks_.size()));
  rounding.count = pass.count && stats_ != nullptr && (style_.counted || TakesBins(pass));
  rounding.moments = moments_ != nullptr, rounding.size_only = size_only_;
  rounding.edge = pass.edge;
  rounding.stats = &blocks_[static_cast<std::size_t>(block)];
  if (TakesBins(pass)) {
    rounding.bins = &bins_[static_cast<std::size_t>(block)];
    rounding.bins_divisor = SplitScale(carried()).mantissa;
  }
  return rounding;
}

void RoundingStats::Finish(const Pass& pass) {
  if (!wanted()) return;
  const std::int64_t blocks =
      images_ > 0 ? BlockCount(pass.rows, images_) : static_cast<std::int64_t>(blocks_.size());
  const TensorStats stats = MergeStats(blocks_.data(), blocks, pass.count && style_.counted);
  max_abs_ = stats.max_abs;
  if (stats_ != nullptr) *stats_ = stats;
  if (moments_ != nullptr) *moments_ = MergeMoments(blocks_.data(), blocks, size_only_);
  if (TakesBins(pass)) *style_.bins = MergeBins(bins_.data(), blocks, carried());
}

}  // namespace ada::backend::cpu
