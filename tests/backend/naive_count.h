// What is counted at a rounding (src/README.md, "What is counted"), by plain loops, and the
// comparison with the counts of a kernel or an op.
#pragma once
#include <doctest/doctest.h>

#include <algorithm>

#include "backend/values.h"

namespace ada::backend::test {

using cpu::BlockStats;

inline Values RoundAll(const NumberFormat& format, const Values& values) {
  Values rounded;
  rounded.reserve(values.size());
  for (const float v : values) rounded.push_back(RoundTo(format, v));
  return rounded;
}

struct NaiveCount {
  BlockStats stats;
  double rounded_l1 = 0;
};
// src/README.md, "What is counted", value by value: `before` any scale of the tensor's own, with it
// (`scaled`), `after` the rounding, and as stored.
inline NaiveCount CountNaively(const NumberFormat& format, const Values& before,
                               const Values& scaled, const Values& after, const Values& stored,
                               double edge = std::numeric_limits<double>::infinity()) {
  NaiveCount count;
  BlockStats& s = count.stats;
  s.values = static_cast<std::int64_t>(before.size());
  const double largest = ada::test::LargestIndependently(format);
  const auto threshold = static_cast<double>(OverflowThreshold(format));
  for (std::size_t i = 0; i < before.size(); ++i) {
    const auto x = static_cast<double>(before[i]), r = static_cast<double>(after[i]);
    const auto size = std::fabs(static_cast<double>(scaled[i]));
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(before[i]) & 0x7fffffffu;
    s.max_bits = std::max(s.max_bits, bits);
    s.min_bits = std::min(s.min_bits, bits - 1);
    s.zeros += x == 0;
    s.zeros_after += r == 0;
    s.underflow += x != 0 && !std::isnan(x) && r == 0;
    s.below_min += size < format.smallest_subnormal();
    s.subnormal += r != 0 && std::fabs(r) < format.smallest_normal();
    s.overflow += std::isfinite(x) && size >= threshold;
    s.inf += std::isinf(x);
    s.nan += std::isnan(x);
    s.above_edge += std::fabs(r) > edge * largest;
    s.sum += x, s.sum_square += x * x, s.l1 += std::fabs(x);
    const auto kept = static_cast<double>(stored[i]);
    s.rounded_sum += kept, s.rounded_square += kept * kept, count.rounded_l1 += std::fabs(kept);
    s.rounded_min = i == 0 ? stored[0] : std::min(s.rounded_min, stored[i]);
    s.rounded_max = i == 0 ? stored[0] : std::max(s.rounded_max, stored[i]);
    s.rounded_min_bits =
        std::min(s.rounded_min_bits, (std::bit_cast<std::uint32_t>(stored[i]) & 0x7fffffffu) - 1);
  }
  return count;
}
inline NaiveCount CountNaively(const NumberFormat& format, const Values& before,
                               const Values& after) {
  return CountNaively(format, before, before, after, after);
}

// Within `bound`; both NaN or the same infinity are equal.
inline bool Near(double a, double b, double bound) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return a == b || std::fabs(a - b) <= bound;
}

// Sums before rounding are in double; those of rounded values are fp32 within 256 terms of a lane
// where the storage is fp16, so 2^-16 of the sum of magnitudes holds them.
inline void CheckBlock(const NaiveCount& want, const BlockStats& got) {
  const BlockStats& w = want.stats;
  CHECK(got.values == w.values);
  CHECK((got.max_bits == w.max_bits || (got.max_bits > 0x7f800000u && w.max_bits > 0x7f800000u)));
  CHECK(got.min_bits == w.min_bits);
  CHECK(got.zeros == w.zeros);
  CHECK(got.zeros_after == w.zeros_after);
  CHECK(got.underflow == w.underflow);
  CHECK(got.below_min == w.below_min);
  CHECK(got.subnormal == w.subnormal);
  CHECK(got.overflow == w.overflow);
  CHECK(got.inf == w.inf);
  CHECK(got.nan == w.nan);
  CHECK(got.above_edge == w.above_edge);
  CHECK(Near(got.sum, w.sum, 1e-12 * w.l1));
  CHECK(Near(got.sum_square, w.sum_square, 1e-12 * w.sum_square));
  CHECK(Near(got.l1, w.l1, 1e-12 * w.l1));
}
inline void CheckRoundedMoments(const NaiveCount& want, const BlockStats& got) {
  const BlockStats& w = want.stats;
  CHECK(Near(got.rounded_sum, w.rounded_sum, 0x1p-16 * want.rounded_l1));
  CHECK(Near(got.rounded_square, w.rounded_square, 0x1p-16 * w.rounded_square));
  if (std::isnan(w.rounded_square)) return;  // extremes are not defined if there is a NaN
  CHECK(got.rounded_min == w.rounded_min);
  CHECK(got.rounded_max == w.rounded_max);
  CHECK(got.rounded_min_bits == w.rounded_min_bits);
}

// Every field of a tensor's statistics, from the values before its rounding, which `scale`, the
// per-tensor scale, multiplies.
inline void CheckStats(const TensorStats& got, const NumberFormat& format, const Values& before,
                       float scale = 1) {
  Values scaled = before;
  for (float& v : scaled) v *= scale;
  const Values after = RoundAll(format, scaled);
  const BlockStats want =
      CountNaively(format, before, scaled, after, after, std::numeric_limits<double>::infinity())
          .stats;
  const auto n = static_cast<double>(want.values);
  double smallest = std::numeric_limits<double>::infinity(), deviations = 0;
  for (const float v : before) {
    const auto magnitude = std::fabs(static_cast<double>(v));
    if (magnitude > 0 && std::isfinite(magnitude)) smallest = std::min(smallest, magnitude);
    deviations += std::pow(static_cast<double>(v) - want.sum / n, 2);
  }
  const double rms = std::sqrt(want.sum_square / n);
  CHECK(got.full);
  CHECK(got.numel == want.values);
  CHECK(got.zeros_before == want.zeros);
  CHECK(got.zeros_after == want.zeros_after);
  CHECK(got.underflow == want.underflow);
  CHECK(got.below_min == want.below_min);
  CHECK(got.subnormal == want.subnormal);
  CHECK(got.overflow == want.overflow);
  CHECK(got.inf == want.inf);
  CHECK(got.nan == want.nan);
  CHECK(static_cast<double>(got.min_abs) == (std::isfinite(smallest) ? smallest : 0));
  CHECK(ada::test::Same(got.max_abs, std::bit_cast<float>(want.max_bits)));
  CHECK(Near(got.mean, want.sum / n, 1e-12 * want.l1 / n));
  CHECK(Near(got.std, std::sqrt(deviations / n), 1e-7 * rms));
  CHECK(Near(got.l1, want.l1, 1e-12 * want.l1));
  CHECK(Near(got.l2, std::sqrt(want.sum_square), 1e-12 * std::sqrt(want.sum_square)));
}
// The moments of stored values; fp16's are fp32 sums in part (CheckRoundedMoments).
inline void CheckMoments(const TensorMoments& got, const Values& stored) {
  const NaiveCount want = CountNaively(kFp32, stored, stored);
  const auto n = static_cast<double>(stored.size());
  CHECK(Near(got.mean, want.stats.rounded_sum / n, 0x1p-16 * want.rounded_l1 / n));
  CHECK(Near(got.mean_square, want.stats.rounded_square / n,
             0x1p-16 * want.stats.rounded_square / n));
  CHECK(got.min == want.stats.rounded_min);
  CHECK(got.max == want.stats.rounded_max);
}

}  // namespace ada::backend::test
