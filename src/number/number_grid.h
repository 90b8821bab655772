// The grid of a number format as fp32 bits, and rounding to it value by value: one definition for
// the host, for CUDA devices and for the kernels of every instruction set, using only integers
// except for NumberGrid::magic. `static`: kernels compiled for several instruction sets must each
// have their own copy.
#pragma once
#include <cstdint>
#include <type_traits>

#include "number/host_device.h"
#include "number/number_format.h"

namespace ada {

inline constexpr std::uint32_t kInfinityBits = 0x7f800000u, kQuietNanBits = 0x7fc00000u;

ADA_HOST_DEVICE static constexpr std::uint32_t BitsOf(float x) {
  return __builtin_bit_cast(std::uint32_t, x);
}
ADA_HOST_DEVICE static constexpr float OfBits(std::uint32_t bits) {
  return __builtin_bit_cast(float, bits);
}
ADA_HOST_DEVICE static constexpr std::uint32_t MagnitudeBits(float x) {
  return BitsOf(x) & 0x7fffffffu;
}
// The index of the highest bit that is set; bits is not 0.
ADA_HOST_DEVICE static constexpr int TopBit(std::uint32_t bits) {
#ifdef __CUDA_ARCH__
  if (!std::is_constant_evaluated()) return 31 - __clz(static_cast<int>(bits));
  int top = 0;
  while ((bits >>= 1) != 0) ++top;
  return top;
#else
  return 31 - __builtin_clz(bits);
#endif
}
// value >> shift, nearest, ties to even; 1 <= shift <= 24.
ADA_HOST_DEVICE static constexpr std::uint32_t ShiftRightToEven(std::uint32_t value, int shift) {
  const std::uint32_t odd = (value >> shift) & 1u;
  return (value + (1u << (shift - 1)) - 1u + odd) >> shift;
}
// Bits of integer * 2^exponent, which must be an fp32; integer <= 2^24.
ADA_HOST_DEVICE static constexpr std::uint32_t BitsOfScaled(std::uint32_t integer, int exponent) {
  if (integer == 0) return 0;
  const int leading = TopBit(integer);
  if (leading + exponent < -126) return integer << (exponent + 149);
  const std::uint32_t mantissa = (integer << (24 - leading) >> 1) & 0x7fffffu;
  return static_cast<std::uint32_t>(leading + exponent + 127) << 23 | mantissa;
}

// --- Properties of a format ----------------------------------------------------------------------

// A magnitude as integer * 2^exponent.
struct ScaledInteger {
  std::uint32_t integer;
  int exponent;
};
// The largest value, its integer with the implicit bit.
ADA_HOST_DEVICE static constexpr ScaledInteger LargestOf(const NumberFormat& f) {
  const std::uint32_t codes = 1u << (f.exponent_bits + f.mantissa_bits);
  const std::uint32_t one = 1u << f.mantissa_bits;
  // `beyond` is one more (because codes start at 0) than the number of codes at the upper end that
  // are not numbers: a whole exponent with inf, the code of all ones, or none.
  const std::uint32_t beyond = f.has_inf ? one + 1 : f.has_nan && f.has_negative_zero ? 2 : 1;
  const std::uint32_t field = (codes - beyond) >> f.mantissa_bits;
  const std::uint32_t mantissa = (codes - beyond) & (one - 1);
  const bool subnormal = field == 0 && f.is_signed;
  const int exponent = (subnormal ? 1 : static_cast<int>(field)) - f.bias;
  return {subnormal ? mantissa : one | mantissa, exponent - f.mantissa_bits};
}
// The exponent of the smallest normal value.
ADA_HOST_DEVICE static constexpr int LowestExponentOf(const NumberFormat& f) {
  return (f.is_signed ? 1 : 0) - f.bias;
}
// Whether small values must be rounded with integers, not by an addition in fp32.
ADA_HOST_DEVICE static constexpr bool NeedsIntegers(const NumberFormat& f) {
  return f.table != 0 || !f.is_signed || f.bias > 127 || 24 - f.bias - f.mantissa_bits > 127;
}

// Constants of a format, as fp32 bits unless noted. A default-constructed one rounds nothing.
struct NumberGrid {
  bool exact = true;  // fp32: nothing is rounded
  bool is_signed = true, e8m0 = false;
  int shift = 0;                 // mantissa bits dropped
  int mantissa_bits = 23;        // kept
  int lowest_exponent = -126;    // of the smallest normal value
  std::uint32_t keep = ~0u;      // mask of the bits that stay
  std::uint32_t half_minus = 0;  // half a spacing, minus the bit that decides ties
  std::uint32_t tie = 0;         // that bit, where the format has one
  std::uint32_t direct_min = 0;  // values from here on are rounded by `shift` only
  float magic = 0;               // adding and subtracting it rounds smaller values; 0: it does not
  std::uint32_t min_normal = 0;  // the smallest normal value
  std::uint32_t below_min = 0;   // |x| < this: below the smallest subnormal
  std::uint32_t largest = 0;     // the largest value
  std::uint32_t overflow_min = 0;              // |x| >= this overflows, inf too
  std::uint32_t over = 0;                      // and becomes this
  std::uint32_t nan_keep = ~0u, nan_flip = 0;  // without NaN it becomes a zero of the other sign
  std::uint32_t zero_sign = 0x80000000u;       // 0: no negative zero
  double largest_value = 0;
  std::uint16_t table = 0;  // not 0: values are rounded by it, and the rest is for counts
  bool saturates = false;   // of a table
  friend bool operator==(const NumberGrid&, const NumberGrid&) = default;
};

// The grid of a format with a table, and rounding by it (number/table_grid.h). On the host alone.
NumberGrid GridOfTable(const NumberFormat& format);
float RoundByTable(std::uint16_t table, bool saturates, float x);
float RoundRandomlyByTable(std::uint16_t table, bool saturates, float x, std::uint32_t random);

// The smallest magnitude that overflows, as bits: halfway to the next value of the grid, where a
// tie rounds to the even one of the two.
ADA_HOST_DEVICE static constexpr std::uint32_t OverflowBits(const ScaledInteger& largest) {
  const bool between = largest.integer < 0x800000u && largest.exponent > -149;
  if (!between) return BitsOfScaled(largest.integer, largest.exponent) + 1;
  return BitsOfScaled(2 * largest.integer + 1, largest.exponent - 1) +
         (largest.integer % 2 == 0 ? 1 : 0);
}

// The grid of a format that RefuseFormat accepts.
ADA_HOST_DEVICE static constexpr NumberGrid GridOf(const NumberFormat& f) {
#ifndef __CUDA_ARCH__
  if (f.table != 0) return GridOfTable(f);
#endif
  constexpr std::uint32_t kSmallestNormal = 0x800000u;  // of fp32
  const int lowest = LowestExponentOf(f), spacing = lowest - f.mantissa_bits;
  const ScaledInteger largest = LargestOf(f);
  NumberGrid grid;
  grid.exact = f == NumberFormat{};  // device code cannot use kFp32
  grid.is_signed = f.is_signed;
  grid.e8m0 = !f.is_signed && f.mantissa_bits == 0 && f.bias == 127;
  grid.mantissa_bits = f.mantissa_bits, grid.lowest_exponent = lowest;
  grid.shift = 23 - f.mantissa_bits;
  grid.keep = ~0u << grid.shift;
  // Rounding adds half a spacing, minus one if the last remaining bit is even, and truncates.
  // Without mantissa bits the neighbors are 1 and 2 times a power of two; ties go to the even 2.
  // even: ties go up.
  grid.tie = grid.shift == 0 || f.mantissa_bits == 0 ? 0 : 1;
  if (grid.shift != 0) grid.half_minus = (1u << (grid.shift - 1)) - grid.tie;
  grid.min_normal = BitsOfScaled(1, lowest);
  grid.below_min = BitsOfScaled(1, f.is_signed ? spacing : lowest);
  grid.largest = BitsOfScaled(largest.integer, largest.exponent);
  grid.overflow_min = OverflowBits(largest);
  grid.over = f.saturate || !f.has_nan ? grid.largest : f.has_inf ? kInfinityBits : kQuietNanBits;
  if (!f.has_nan) grid.nan_keep = 0, grid.nan_flip = 0x80000000u;
  if (!f.has_negative_zero) grid.zero_sign = 0;
  grid.largest_value = static_cast<double>(OfBits(grid.largest));
  // fp32's own subnormals have one spacing, so that `shift` works for them too.
  if (f.is_signed && lowest == -126) return grid;
  grid.direct_min = grid.min_normal > kSmallestNormal ? grid.min_normal : kSmallestNormal;
  // The numbers around 2^(spacing + 23) are 2^spacing apart, so that fp32's own addition rounds to
  // the format's subnormals.
  if (!NeedsIntegers(f)) grid.magic = OfBits(BitsOfScaled(1, spacing + 23));
  return grid;
}

// --- Rounding ------------------------------------------------------------------------------------

// |x| = integer * 2^unit, and the spacing 2^(unit + shift) of the grid around it. Not for 0.
struct SpacingOfGrid {
  std::uint32_t integer;
  int unit, shift;
};
ADA_HOST_DEVICE static inline SpacingOfGrid SpacingAt(const NumberGrid& grid,
                                                      std::uint32_t magnitude) {
  const int field = static_cast<int>(magnitude >> 23);
  const std::uint32_t integer = (magnitude & 0x7fffffu) | (field == 0 ? 0u : 0x800000u);
  const int unit = (field == 0 ? 1 : field) - 150;
  const int exponent = TopBit(integer) + unit;
  const int lowest = exponent > grid.lowest_exponent ? exponent : grid.lowest_exponent;
  return {integer, unit, lowest - grid.mantissa_bits - unit};
}

// Rounds a magnitude that `shift` alone cannot round.
ADA_HOST_DEVICE static inline std::uint32_t RoundSmall(const NumberGrid& grid, std::uint32_t u) {
  if (grid.magic != 0) return BitsOf((OfBits(u) + grid.magic) - grid.magic);
  if (u == 0) return 0;
  const SpacingOfGrid at = SpacingAt(grid, u);
  if (at.shift <= 0) return u;
  if (at.shift > 24) return 0;  // below half of the smallest subnormal
  return BitsOfScaled(ShiftRightToEven(at.integer, at.shift), at.unit + at.shift);
}

// Applies the format's end to `rounded`, the magnitude u rounded to an unlimited grid.
ADA_HOST_DEVICE static inline float KeepOnGrid(const NumberGrid& grid, std::uint32_t u,
                                               std::uint32_t sign, std::uint32_t rounded) {
  if (u >= grid.overflow_min) rounded = grid.over;
  if (!grid.is_signed && rounded < grid.min_normal) rounded = grid.min_normal;
  if (rounded == 0) sign &= grid.zero_sign;
  return OfBits(sign | rounded);
}

// RoundTo, for the format of the grid.
ADA_HOST_DEVICE static inline float RoundToGrid(const NumberGrid& grid, float x) {
  if (grid.exact) return x;
#ifndef __CUDA_ARCH__
  if (grid.table != 0) return RoundByTable(grid.table, grid.saturates, x);
#endif
  const std::uint32_t bits = BitsOf(x), u = bits & 0x7fffffffu, sign = bits ^ u;
  if (u > kInfinityBits) return OfBits((u & grid.nan_keep) | (sign ^ grid.nan_flip));
  if (!grid.is_signed) {
    if (sign != 0 || u == 0) return OfBits(kQuietNanBits);
    // ml_dtypes' e8m0: fp32's subnormals above 2^-127 become 2^-126 even where 2^-127 is nearer.
    if (grid.e8m0 && u > 0x400000u && u < 0x800000u) return OfBits(0x800000u);
  }
  const std::uint32_t direct = (u + grid.half_minus + ((u >> grid.shift) & grid.tie)) & grid.keep;
  return KeepOnGrid(grid, u, sign, u >= grid.direct_min ? direct : RoundSmall(grid, u));
}

// RoundStochastically, for the format of the grid.
ADA_HOST_DEVICE static inline float RoundRandomlyToGrid(const NumberGrid& grid, float x,
                                                        std::uint32_t random) {
#ifndef __CUDA_ARCH__
  if (grid.table != 0) return RoundRandomlyByTable(grid.table, grid.saturates, x, random);
#endif
  const std::uint32_t bits = BitsOf(x), u = bits & 0x7fffffffu, sign = bits ^ u;
  if (u >= grid.largest || u == 0 || (!grid.is_signed && sign != 0)) return RoundToGrid(grid, x);
  if (u >= grid.direct_min) {
    if (grid.shift == 0) return x;
    // The part below the spacing, in units of 2^-32 spacings.
    const std::uint32_t up = random < u << (32 - grid.shift) ? 1 : 0;
    return KeepOnGrid(grid, u, sign, (u & grid.keep) + (up << grid.shift));
  }
  const SpacingOfGrid at = SpacingAt(grid, u);
  if (at.shift <= 0) return x;
  // The low word of `part` is the position between the two neighbors in units of 2^-32, the high
  // word the lower neighbor.
  const std::uint64_t shifted = std::uint64_t{at.integer} << 32;
  const std::uint64_t part = at.shift < 64 ? shifted >> at.shift : 0;
  const std::uint32_t up = random < static_cast<std::uint32_t>(part) ? 1 : 0;
  return KeepOnGrid(grid, u, sign,
                    BitsOfScaled(static_cast<std::uint32_t>(part >> 32) + up, at.unit + at.shift));
}

// A double as fp32, rounded towards zero with the last bit set where it is no fp32: that tells on
// which side of every midpoint of a narrower format it is.
ADA_HOST_DEVICE static inline float OddFloatOf(double x) {
  const float near = static_cast<float>(x);
  std::uint32_t bits = BitsOf(near);
  const double at = static_cast<double>(near);
  if (at < x || at > x) bits = (bits - ((at > x) == (x > 0) ? 1 : 0)) | 1u;
  return OfBits(bits);
}
// The fp16 value nearest to a double, rounded once.
ADA_HOST_DEVICE static inline double RoundToHalf(double x) {
  constexpr NumberGrid kHalf = GridOf(kFp16);
  return static_cast<double>(RoundToGrid(kHalf, OddFloatOf(x)));
}

// --- Codes of 16 bits ----------------------------------------------------------------------------

ADA_HOST_DEVICE static inline float OfFp16(std::uint16_t code) {
  const std::uint32_t sign = (code & 0x8000u) << 16;
  const std::uint32_t exponent = code >> 10 & 0x1fu, mantissa = code & 0x3ffu;
  if (exponent == 0x1fu)
    return OfBits(sign | kInfinityBits | mantissa << 13 | (mantissa != 0 ? 0x400000u : 0u));
#ifdef __CUDA_ARCH__
  float x = 0;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(code));
  return x;
#else
  return OfBits(sign | (exponent == 0 ? BitsOfScaled(mantissa, -24)
                                      : (exponent + 112) << 23 | mantissa << 13));
#endif
}
// Rounded to nearest; a NaN becomes quiet and keeps its payload, as with vcvtps2ph.
ADA_HOST_DEVICE static inline std::uint16_t Fp16CodeOf(float x) {
  const std::uint32_t bits = BitsOf(x), u = bits & 0x7fffffffu;
  const std::uint32_t sign = bits >> 16 & 0x8000u;
  if (u > kInfinityBits) return static_cast<std::uint16_t>(sign | 0x7e00u | (u >> 13 & 0x3ffu));
#ifdef __CUDA_ARCH__
  std::uint16_t code = 0;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(code) : "f"(x));
  return code;
#else
  std::uint32_t code = 0;
  if (u >= 0x477ff000u)  // 65520: half a spacing above 65504
    code = 0x7c00u;
  else if (u >= 0x38800000u)  // 2^-14: normal; a carry into the exponent is right
    code = (u + 0xfffu + (u >> 13 & 1u) - 0x38000000u) >> 13;
  else if (u > 0x33000000u)  // above 2^-25: subnormal, in units of 2^-24
    code = ShiftRightToEven((u & 0x7fffffu) | 0x800000u, 126 - static_cast<int>(u >> 23));
  return static_cast<std::uint16_t>(sign | code);
#endif
}
ADA_HOST_DEVICE static inline float OfBf16(std::uint16_t code) {
  return OfBits(static_cast<std::uint32_t>(code) << 16);
}
ADA_HOST_DEVICE static inline std::uint16_t Bf16CodeOf(float x) {
  const std::uint32_t bits = BitsOf(x);
  if ((bits & 0x7fffffffu) > kInfinityBits) return static_cast<std::uint16_t>(bits >> 16 | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

}  // namespace ada
