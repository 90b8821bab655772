// The counts of one tensor of a file, as text fields and as a CSV row.
#pragma once
#include <array>
#include <cstdint>
#include <iosfwd>

#include "core/number_format.h"
#include "core/safetensors.h"
#include "core/stats.h"

namespace ada::study {

// How many non-zero finite values have which floor(log2 |x|), as the file has them.
struct Exponents {
  static constexpr int kLowest = -149, kHighest = 127;  // of fp32, subnormals included
  std::array<std::int64_t, kHighest - kLowest + 1> counts = {};
  std::int64_t& At(int exponent) { return counts[static_cast<std::size_t>(exponent - kLowest)]; }
  std::int64_t At(int exponent) const {
    return counts[static_cast<std::size_t>(exponent - kLowest)];
  }
};

struct TensorCount {
  TensorStats stats;  // of rounding the values that the file has
  double scale = 1;   // that they carry: moments and extremes are reported without it
  Exponents exponents;
};

TensorCount CountTensor(const SafetensorsFile& file, const TensorEntry& entry,
                        const NumberFormat& format, double scale);

// The columns of underflow.csv that a file can fill.
inline constexpr char kCountColumns[] =
    "tensor,format,scale,numel,zeros,underflow,underflow_pct_nonzero,underflow_pct_numel,"
    "subnormal,overflow,inf,nan,min_abs,max_abs,mean,std,l2,range_log2";
void WriteCountRow(const TensorEntry& entry, const NumberFormat& format, const TensorCount& count,
                   std::ostream& out);

}  // namespace ada::study
