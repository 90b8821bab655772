// Counts are made by the backend's own function, so inspect agrees with a run's underflow.csv.
// Values of F64 need care: rounded to fp32 first they would be rounded twice.
#include <algorithm>
#include <cmath>
#include <vector>

#include "backend/cpu/rounding/count_rounding.h"
#include "study/convert/block_tensor.h"
#include "study/inspect/inspected.h"

namespace ada::study {

namespace {

// Values are taken in the file's own type: fp64 has exponents that fp32 does not.
template <class Value>
void TakeExtremes(const std::vector<Value>& values, TensorCount& count) {
  for (const Value x : values) {
    if (x == 0 || !std::isfinite(x)) continue;
    const double magnitude = std::fabs(static_cast<double>(x));
    ++count.exponents.At(std::ilogb(magnitude));
    if (count.smallest == 0 || magnitude < count.smallest) count.smallest = magnitude;
    if (magnitude > count.largest) count.largest = magnitude;
  }
}

TensorStats StatsOf(const std::vector<float>& values, const NumberFormat& format) {
  return backend::cpu::CountRounding(values.data(), static_cast<std::int64_t>(values.size()), 1,
                                     format);
}

// What rounding does to values of F64 in a format that is nearly as fine as fp32.
// Formats with so many bits leave no room for the sticky bit of ToOddFloat, so each value is
// rounded by itself, without the vectorized kernels.
TensorStats CountFine(const std::vector<double>& values, const NumberFormat& format) {
  TensorStats stats;
  stats.full = true;
  stats.numel = static_cast<std::int64_t>(values.size());
  for (const double x : values) {
    const auto rounded = static_cast<double>(RoundTo(format, x));
    const bool finite = std::isfinite(x);
    stats.zeros_before += x == 0;
    stats.zeros_after += rounded == 0;
    stats.underflow += x != 0 && rounded == 0;
    stats.below_min += std::fabs(x) < format.smallest_subnormal();
    stats.subnormal += rounded != 0 && std::fabs(rounded) < format.smallest_normal();
    stats.overflow += finite && (!std::isfinite(rounded) ||
                                 std::fabs(x) >= static_cast<double>(OverflowThreshold(format)));
    stats.inf += std::isinf(x);
    stats.nan += std::isnan(x);
  }
  return stats;
}

// Mean, deviation and norms of values of F64, in units of a power of two: the largest finite value
// lies in [1, 2), so that no square overflows.
void TakeMoments(const std::vector<double>& values, TensorStats& stats) {
  double largest = 0;
  for (const double x : values)
    if (std::isfinite(x)) largest = std::max(largest, std::fabs(x));
  const int unit = largest > 0 ? std::ilogb(largest) : 0;
  const auto in_units = [unit](double x) { return std::ldexp(x, -unit); };
  double sum = 0, l1 = 0, square = 0, deviation = 0;
  for (const double value : values) {
    const double x = in_units(value);
    sum += x, l1 += std::fabs(x), square += x * x;
  }
  const auto n = static_cast<double>(values.size());
  const double mean = values.empty() ? 0 : sum / n;
  for (const double value : values) {
    const double x = in_units(value) - mean;
    deviation += x * x;
  }
  stats.mean = std::ldexp(mean, unit), stats.l1 = std::ldexp(l1, unit);
  stats.l2 = std::ldexp(std::sqrt(square), unit);
  stats.std = values.empty() ? 0 : std::ldexp(std::sqrt(deviation / n), unit);
}

// Every value is rounded once, from double.
// Rounding to odd keeps in its last bit that something was cut off; a second rounding to fewer bits
// then gives what a single one would.
void CountDoubles(const std::vector<double>& values, const NumberFormat& format,
                  TensorCount& count) {
  if (format.mantissa_bits <= kMostBitsOfOdd) {
    std::vector<float> odd(values.size());
    std::transform(values.begin(), values.end(), odd.begin(), ToOddFloat);
    count.stats = StatsOf(odd, format);
  } else {
    count.stats = CountFine(values, format);
  }
  TakeMoments(values, count.stats);
  TakeExtremes(values, count);
}

}  // namespace

TensorCount CountTensor(const SafetensorsFile& file, const TensorEntry& entry,
                        const NumberFormat& format, double scale) {
  TensorCount count;
  count.scale = scale;
  if (entry.dtype == DType::kF64) {
    CountDoubles(file.ReadF64(entry.name), format, count);
    return count;
  }
  const std::vector<float> values = file.ReadF32(entry.name);
  count.stats = StatsOf(values, format);
  TakeExtremes(values, count);
  return count;
}

CountRow CountRowOf(const TensorEntry& entry, const NumberFormat& format,
                    const TensorCount& count) {
  const TensorStats& s = count.stats;
  CountRow row{.tensor = entry.name,
               .format = FormatName(format),
               .scale = count.scale,
               .numel = s.numel,
               .zeros = s.zeros_before,
               .underflow = s.underflow,
               .underflow_pct_nonzero = PercentOf(s.underflow, s.numel - s.zeros_before),
               .underflow_pct_numel = PercentOf(s.underflow, s.numel),
               .subnormal = s.subnormal,
               .overflow = s.overflow,
               .inf = s.inf,
               .nan = s.nan,
               .max_abs = count.largest / count.scale,
               .mean = s.mean / count.scale,
               .std = s.std / count.scale,
               .l2 = s.l2 / count.scale};
  if (count.smallest > 0) {  // a finite value that is not zero
    row.min_abs = count.smallest / count.scale;
    const double ratio = count.largest / count.smallest;
    // The quotient of two doubles may overflow; the difference of their logarithms cannot.
    row.range_log2 = std::isfinite(ratio) ? std::log2(ratio)
                                          : std::log2(count.largest) - std::log2(count.smallest);
  }
  return row;
}

BlockCountRow BlockCountRowOf(const SafetensorsFile& file, const TensorEntry& entry,
                              const BlockFormat& format, std::optional<int> axis, double scale) {
  const BlockTensor tensor = ReadBlockTensor(file, entry, format, axis, 1);
  BlockCounts counts;
  QuantizeBlocks(format, tensor.layout, tensor.amax, tensor.bf16, tensor.values.data(), {},
                 &counts);
  BlockCountRow row;
  row.Take(counts);
  row.tensor = entry.name, row.format = FormatName(format), row.scale = scale;
  return row;
}

}  // namespace ada::study
