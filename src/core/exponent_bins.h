// How the magnitudes of a tensor are spread over binary exponents, and what any format at any scale
// would lose of them: a histogram of log2 |x|. Numbers only.
#pragma once
#include <array>
#include <cstdint>

#include "core/number_format.h"

namespace ada {

// Counts of values by floor(log2 |x|), of x without its scale and before it was rounded. Wide
// enough for every fp32 value under every fp32 scale.
struct ExponentBins {
  static constexpr int kLowest = -280, kHighest = 280;
  std::array<std::int64_t, kHighest - kLowest + 1> counts{};
  std::int64_t zeros = 0, inf = 0, nan = 0;

  // `exponent` lies in kLowest..kHighest; it is not checked.
  std::int64_t& operator[](int exponent) {
    return counts[static_cast<std::size_t>(exponent - kLowest)];
  }
  std::int64_t operator[](int exponent) const {
    return counts[static_cast<std::size_t>(exponent - kLowest)];
  }
  void Add(const ExponentBins& other);
  std::int64_t nonzero() const;  // finite values that are not zero
  std::int64_t numel() const;    // all values
  friend bool operator==(const ExponentBins&, const ExponentBins&) = default;
};

// What rounding to nearest would lose of a tensor that carries some scale. A threshold lies in one
// exponent's bin; `unsure` is all that this bin holds. Below and above it counts are exact; of the
// bin itself the part beyond the threshold is taken as if values were spread evenly in it (none of
// it counts as underflow where the threshold is the bin's lower end, a power of two: only values
// that are equal to it underflow).
struct WouldLose {
  std::int64_t nonzero = 0;  // finite values that are not zero
  double underflow = 0, overflow = 0;
  std::int64_t underflow_unsure = 0, overflow_unsure = 0;
  double underflow_pct() const;  // of nonzero; NaN where there are none
};
// `scale` is positive and finite.
WouldLose WouldLoseOf(const ExponentBins& bins, const NumberFormat& format, double scale);

}  // namespace ada
