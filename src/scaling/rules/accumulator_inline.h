// The arithmetic of an accumulator: one definition, for the host, for devices and for tests. The
// vectorized kernels (backend/cpu/kernels) give the same bits.
//
// The model is that of MMA-Sim (arXiv 2511.10909), whose authors compared theirs with ten GPU
// architectures; Fasi et al. (PeerJ Computer Science 7:e330, 2021) measured the first of them:
//
//   a product is exact; its exponent is the sum of those of its operands (never normalized), where
//     a subnormal operand has its format's least normal exponent
//   E is the largest exponent of the products other than zero and of the accumulator; with a range
//     of fp32 (8 bits of exponent) an accumulator of zero counts as -126
//   products and accumulator are cut toward zero to multiples of 2^(E - fraction_bits)
//   their exact sum is brought into the accumulator's format: cut, or rounded to nearest even
//   beyond its largest value it is inf; inf and NaN go on as in IEEE 754; a zero is +0
#pragma once
#include <cstdint>

#include "number/host_device.h"
#include "number/number_grid.h"
#include "scaling/rules/accumulator.h"

namespace ada::scaling {

namespace detail {

// No double here is subnormal: products of two fp32 values are at least 2^-298.
ADA_HOST_DEVICE static inline int ExponentOfDouble(double x) {
  return static_cast<int>(__builtin_bit_cast(std::uint64_t, x) >> 52 & 0x7ffu) - 1023;
}
ADA_HOST_DEVICE static inline double TwoTo(int exponent) {
  return __builtin_bit_cast(double, static_cast<std::uint64_t>(exponent + 1023) << 52);
}
// |x| < 2^53.
ADA_HOST_DEVICE static inline double CutToInteger(double x) {
  return static_cast<double>(static_cast<std::int64_t>(x));
}
ADA_HOST_DEVICE static inline bool IsFiniteSum(double x) { return x - x == 0; }
ADA_HOST_DEVICE static inline double MagnitudeOfSum(double x) { return x < 0 ? -x : x; }

// The sum of `values`, exact but for its last bit, which is set where it is not exact (rounding to
// odd): rounding it once more to at most 51 bits gives the exact sum's rounding. Partial sums do
// not overlap (Shewchuk, Adaptive Precision Floating-Point Arithmetic, 1997).
class OddSum {
 public:
  ADA_HOST_DEVICE void Add(double x) {
    int kept = 0;
    for (int i = 0; i < count_; ++i) {
      double y = parts_[i];
      if (MagnitudeOfSum(x) < MagnitudeOfSum(y)) {
        const double swap = x;
        x = y, y = swap;
      }
      const double high = x + y, low = y - (high - x);
      if (low != 0) parts_[kept++] = low;
      x = high;
    }
    parts_[kept++] = x;
    count_ = kept;
  }
  ADA_HOST_DEVICE double Value() const {
    if (count_ == 0) return 0;
    double high = parts_[count_ - 1];
    double rest = 0;  // its sign alone matters
    for (int i = count_ - 2; i >= 0 && rest == 0; --i) {
      const double sum = high + parts_[i];
      rest = parts_[i] - (sum - high);
      high = sum;
    }
    if (rest == 0) return high;
    std::uint64_t bits = __builtin_bit_cast(std::uint64_t, high);
    if ((bits & 1u) == 0) bits = (rest > 0) == (high > 0) ? bits + 1 : bits - 1;
    return __builtin_bit_cast(double, bits);
  }

 private:
  // Partial sums are 53 bits apart, and all bits lie within 2^-298 and 2^300.
  double parts_[16] = {};
  int count_ = 0;
};

}  // namespace detail

// The exponent that alignment sees of an operand's value other than zero; least: the exponent of
// its format's smallest normal value.
ADA_HOST_DEVICE static inline int AlignedExponent(float value, int least) {
  const int exponent = detail::ExponentOfDouble(static_cast<double>(value));
  return exponent > least ? exponent : least;
}

// An accumulator's exponent where it is zero; none: kNoExponent.
inline constexpr int kNoExponent = -30000;
ADA_HOST_DEVICE static inline int ExponentOfZero(const NumberFormat& format) {
  return format.exponent_bits >= 8 ? 1 - format.bias : kNoExponent;
}

// A sum that is exact (or odd, see above) in the accumulator's format.
ADA_HOST_DEVICE static inline double IntoAccumulator(const Accumulator& rule, double sum) {
  if (sum == 0) return 0;
  if (!detail::IsFiniteSum(sum)) return sum;
  const NumberFormat& format = rule.format;
  const int lowest = 1 - format.bias, top = detail::ExponentOfDouble(sum);
  const int unit = (top > lowest ? top : lowest) - format.mantissa_bits;
  constexpr double kToInteger = 0x1.8p52;  // adding and subtracting it rounds to nearest even
  const double units = sum * detail::TwoTo(-unit);
  const double whole = rule.rounding == AccumulatorRounding::kNearest
                           ? (units + kToInteger) - kToInteger
                           : detail::CutToInteger(units);
  const double value = whole * detail::TwoTo(unit) + 0.0;
  const ScaledInteger most = LargestOf(format);
  const double largest = static_cast<double>(most.integer) * detail::TwoTo(most.exponent);
  if (detail::MagnitudeOfSum(value) <= largest) return value;
  const double over = format.saturate ? largest
                      : format.has_inf || !format.has_nan
                          ? static_cast<double>(OfBits(kInfinityBits))
                          : static_cast<double>(OfBits(kQuietNanBits));
  return value < 0 ? -over : over;
}

// One group of products onto the accumulator. exponents: those of the operands added up, read where
// a product is not zero. swallowed: null, or where products other than zero that were cut to zero
// are counted.
ADA_HOST_DEVICE static inline double AddGroup(const Accumulator& rule, const double* products,
                                              const int* exponents, int count, double sum,
                                              std::int64_t* swallowed = nullptr) {
  double plain = sum;
  int largest = kNoExponent;
  for (int i = 0; i < count; ++i) {
    plain += products[i];
    if (products[i] != 0 && exponents[i] > largest) largest = exponents[i];
  }
  // Neither finite products of fp32 values nor their sums overflow a double.
  if (!detail::IsFiniteSum(plain)) return plain;
  if (!rule.cuts()) {
    detail::OddSum exact;
    if (sum != 0) exact.Add(sum);
    for (int i = 0; i < count; ++i)
      if (products[i] != 0) exact.Add(products[i]);
    return IntoAccumulator(rule, exact.Value());
  }
  const int lowest = 1 - rule.format.bias;
  int own = ExponentOfZero(rule.format);
  if (sum != 0) {
    own = detail::ExponentOfDouble(sum);
    if (own < lowest) own = lowest;
  }
  if (own > largest) largest = own;
  if (largest == kNoExponent) return 0;
  const int unit = largest - rule.fraction_bits;
  const double scale = detail::TwoTo(-unit);
  double total = detail::CutToInteger(sum * scale);
  for (int i = 0; i < count; ++i) {
    const double cut = detail::CutToInteger(products[i] * scale);
    if (swallowed != nullptr && cut == 0 && products[i] != 0) ++*swallowed;
    total += cut;
  }
  return IntoAccumulator(rule, total * detail::TwoTo(unit));
}

// The running sum of one output. Products come in groups (AddGroup into `part`); where a promotion
// is due, and at the end, Promote adds the part to fp32.
struct AccumulatedSum {
  double part = 0;
  float main = 0;
};
// main = fp32(part * factor + main), rounded once; the part starts again from zero.
ADA_HOST_DEVICE static inline void Promote(AccumulatedSum& sum, float factor) {
  sum.main = __builtin_fmaf(static_cast<float>(sum.part), factor, sum.main);
  sum.part = 0;
}

}  // namespace ada::scaling
