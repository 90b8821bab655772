// Sums of block results in double; see merge.h.
#include "backend/cpu/merge.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/error.h"

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
    total.underflow += b.underflow;
    total.below_min += b.below_min;
    total.subnormal += b.subnormal;
    total.overflow += b.overflow;
    total.inf += b.inf;
    total.nan += b.nan;
    sum += b.sum;
    square += b.sum_square;
    total.l1 += b.l1;
  }
  total.max_abs = std::bit_cast<float>(max_bits);
  total.full = full;
  if (!full || total.numel == 0) return total;
  const auto n = static_cast<double>(total.numel);
  total.zeros_after = total.zeros_before + total.underflow;
  constexpr std::uint32_t kInfinity = 0x7f800000u;  // from here on: no finite value but zeros
  total.min_abs = min_bits >= kInfinity - 1 ? 0.0f : std::bit_cast<float>(min_bits + 1);
  total.mean = sum / n;
  const double variance = square / n - total.mean * total.mean;
  total.std = std::sqrt(variance < 0 ? 0 : variance);
  total.l2 = std::sqrt(square);
  return total;
}

TensorMoments MergeMoments(const BlockStats* blocks, std::int64_t count) {
  double sum = 0, square = 0, values = 0;
  TensorMoments moments;
  if (count > 0) moments.min = blocks[0].rounded_min, moments.max = blocks[0].rounded_max;
  for (std::int64_t i = 0; i < count; ++i) {
    sum += blocks[i].rounded_sum;
    square += blocks[i].rounded_square;
    values += static_cast<double>(blocks[i].values);
    moments.min = std::min(moments.min, blocks[i].rounded_min);
    moments.max = std::max(moments.max, blocks[i].rounded_max);
  }
  moments.mean = values > 0 ? sum / values : 0;
  moments.mean_square = values > 0 ? square / values : 0;
  return moments;
}

Rounding Notes::For(const NumberFormat& format, const Pass& pass, std::int64_t block) {
  if (!wanted()) return {format, false, false, nullptr};
  ADA_CHECK(block < static_cast<std::int64_t>(blocks_.size()));
  return {format, pass.count && stats_ != nullptr, moments_ != nullptr,
          &blocks_[static_cast<std::size_t>(block)]};
}

void Notes::Finish(const Pass& pass, std::int64_t blocks) {
  if (!wanted()) return;
  const TensorStats stats = MergeStats(blocks_.data(), blocks, pass.count && stats_ != nullptr);
  max_abs_ = stats.max_abs;
  if (stats_ != nullptr) *stats_ = stats;
  if (moments_ != nullptr) *moments_ = MergeMoments(blocks_.data(), blocks);
}

}  // namespace ada::backend::cpu
