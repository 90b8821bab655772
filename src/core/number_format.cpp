// The scalar conversions, on bits and integers alone: no rounding mode or flush-to-zero flag of the
// processor changes them. RoundTo is general; the 16-bit codes have a way of their own.
#include "core/number_format.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/error.h"

namespace ada {
namespace {

constexpr std::uint32_t kInfBits = 0x7F800000u, kNanBits = 0x7FC00000u;

// A magnitude as integer * 2^exponent.
struct Scaled {
  std::uint32_t integer;
  int exponent;
};

int LowestExponent(const NumberFormat& format) { return (format.is_signed ? 1 : 0) - format.bias; }

std::uint32_t LargestCode(const NumberFormat& format) {
  const std::uint32_t codes = 1u << (format.exponent_bits + format.mantissa_bits);
  if (format.has_inf) return codes - (1u << format.mantissa_bits) - 1;
  return codes - (format.has_nan && format.has_negative_zero ? 2 : 1);
}

// The largest value, its integer with the implicit bit.
Scaled Largest(const NumberFormat& format) {
  const std::uint32_t code = LargestCode(format), one = 1u << format.mantissa_bits;
  const std::uint32_t field = code >> format.mantissa_bits, mantissa = code & (one - 1);
  const bool subnormal = field == 0 && format.is_signed;
  const int exponent = (subnormal ? 1 : static_cast<int>(field)) - format.bias;
  return {subnormal ? mantissa : one | mantissa, exponent - format.mantissa_bits};
}

int TopExponent(const Scaled& x) {
  return static_cast<int>(std::bit_width(x.integer)) - 1 + x.exponent;
}

bool WidthsAreSupported(const NumberFormat& format) {
  return format.exponent_bits >= 1 && format.exponent_bits <= 8 && format.mantissa_bits >= 0 &&
         format.mantissa_bits <= 23 && format.bias >= -300 && format.bias <= 300;
}
// Whether the codes of numbers, inf and NaN are those of one of the families.
bool CodesAreSupported(const NumberFormat& format) {
  if (format.has_inf) {
    return format.has_nan && format.has_negative_zero && format.is_signed &&
           format.mantissa_bits >= 1;
  }
  return format.has_nan || (format.has_negative_zero && format.is_signed);
}
bool RangeIsSupported(const NumberFormat& format) {
  const Scaled largest = Largest(format);
  return LowestExponent(format) - format.mantissa_bits >= -149 && largest.integer != 0 &&
         TopExponent(largest) <= 127;
}
bool IsSupported(const NumberFormat& format) {
  return WidthsAreSupported(format) && CodesAreSupported(format) && RangeIsSupported(format);
}

// value >> shift, nearest, ties to even; 1 <= shift <= 24.
std::uint32_t ShiftRightToEven(std::uint32_t value, int shift) {
  const std::uint32_t odd = (value >> shift) & 1u;
  return (value + (1u << (shift - 1)) - 1u + odd) >> shift;
}

// Bits of integer * 2^exponent, which must be an fp32; integer <= 2^24.
std::uint32_t ScaledBits(std::uint32_t integer, int exponent) {
  if (integer == 0) return 0;
  const int leading = static_cast<int>(std::bit_width(integer)) - 1;
  if (leading + exponent < -126) return integer << (exponent + 149);
  const std::uint32_t mantissa = (integer << (24 - leading) >> 1) & 0x7FFFFFu;
  return static_cast<std::uint32_t>(leading + exponent + 127) << 23 | mantissa;
}

// |x| = integer * 2^unit and the spacing 2^(unit + shift) of the format around it.
struct Place {
  std::uint32_t integer;
  int unit, shift;
};
Place PlaceOf(const NumberFormat& format, std::uint32_t magnitude) {
  const auto field = static_cast<int>(magnitude >> 23);
  const std::uint32_t integer = (magnitude & 0x7FFFFFu) | (field == 0 ? 0u : 0x800000u);
  const int unit = std::max(field, 1) - 150;
  const int exponent = static_cast<int>(std::bit_width(integer)) - 1 + unit;
  const int spacing = std::max(exponent, LowestExponent(format)) - format.mantissa_bits;
  return {integer, unit, spacing - unit};
}

std::uint32_t RoundMagnitude(const NumberFormat& format, std::uint32_t magnitude) {
  if (magnitude == 0 || magnitude == kInfBits) return magnitude;
  const Place at = PlaceOf(format, magnitude);
  if (at.shift <= 0) return magnitude;
  if (at.shift > 24) return 0;  // below half of the smallest subnormal
  return ScaledBits(ShiftRightToEven(at.integer, at.shift), at.unit + at.shift);
}

std::uint32_t LargestBits(const NumberFormat& format) {
  const Scaled largest = Largest(format);
  return ScaledBits(largest.integer, largest.exponent);
}

// `rounded` (bits of a magnitude on the format's grid, which has no end) as the format keeps it.
float Keep(const NumberFormat& format, std::uint32_t sign, std::uint32_t rounded) {
  const std::uint32_t largest = LargestBits(format);
  if (rounded > largest) {
    const bool saturates = format.saturate || !format.has_nan;
    rounded = saturates ? largest : format.has_inf ? kInfBits : kNanBits;
  } else if (!format.is_signed) {  // nothing lies below its smallest normal number
    rounded = std::max(rounded, ScaledBits(1, LowestExponent(format)));
  } else if (rounded == 0 && !format.has_negative_zero) {
    sign = 0;
  }
  return std::bit_cast<float>(sign | rounded);
}

// ml_dtypes' e8m0: fp32's subnormals above 2^-127 become 2^-126 even where 2^-127 is nearer.
bool RoundsUp(const NumberFormat& format, std::uint32_t magnitude) {
  const bool e8m0 = !format.is_signed && format.mantissa_bits == 0 && format.bias == 127;
  return e8m0 && magnitude > 0x400000u && magnitude < 0x800000u;
}

// Without a code for NaN: a zero of the other sign, as ml_dtypes gives.
float KeepNan(const NumberFormat& format, float x) {
  if (format.has_nan) return x;
  return std::bit_cast<float>(~std::bit_cast<std::uint32_t>(x) & 0x80000000u);
}

}  // namespace

double NumberFormat::smallest_subnormal() const {
  return std::ldexp(1.0, LowestExponent(*this) - (is_signed ? mantissa_bits : 0));
}

double NumberFormat::smallest_normal() const { return std::ldexp(1.0, LowestExponent(*this)); }

double NumberFormat::largest() const {
  ADA_CHECK(IsSupported(*this));
  const Scaled largest = Largest(*this);
  return std::ldexp(static_cast<double>(largest.integer), largest.exponent);
}

std::string RefuseFormat(const NumberFormat& format) {
  const auto outside = [](const char* what, int is, int low, int high) {
    return std::string(what) + " is " + std::to_string(is) + "; " + std::to_string(low) + " to " +
           std::to_string(high) + " are possible";
  };
  if (format.exponent_bits < 1 || format.exponent_bits > 8)
    return outside("exponent", format.exponent_bits, 1, 8);
  if (format.mantissa_bits < 0 || format.mantissa_bits > 23)
    return outside("mantissa", format.mantissa_bits, 0, 23);
  if (!WidthsAreSupported(format)) return outside("bias", format.bias, -300, 300);
  if (format.has_inf && format.mantissa_bits == 0)
    return "a format with inf needs a mantissa bit to tell NaN from inf: mantissa is 0";
  if (format.has_inf && !CodesAreSupported(format))
    return "a format with inf has NaN, a negative zero and a sign too";
  if (!CodesAreSupported(format)) return "a format without NaN has a negative zero and a sign";
  if (RangeIsSupported(format)) return {};
  const Scaled largest = Largest(format);
  if (largest.integer == 0) return "it has no number but zero; give it a bit more";
  const int smallest = LowestExponent(format) - format.mantissa_bits;
  return smallest < -149 ? "its smallest value, 2^" + std::to_string(smallest) +
                               ", lies below fp32's, 2^-149: lower bias or mantissa"
                         : "its largest value, 2^" + std::to_string(TopExponent(largest)) +
                               " or more, lies beyond fp32's: raise bias";
}

float RoundTo(const NumberFormat& format, float x) {
  ADA_CHECK(IsSupported(format));
  if (format == kFp32) return x;
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = bits & 0x80000000u, magnitude = bits ^ sign;
  if (magnitude > kInfBits) return KeepNan(format, x);
  if (!format.is_signed && (sign != 0 || magnitude == 0)) return std::bit_cast<float>(kNanBits);
  if (RoundsUp(format, magnitude)) return 0x1p-126f;
  return Keep(format, sign, RoundMagnitude(format, magnitude));
}

float RoundStochastically(const NumberFormat& format, float x, std::uint32_t random) {
  ADA_CHECK(IsSupported(format));
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = bits & 0x80000000u, magnitude = bits ^ sign;
  if (magnitude >= LargestBits(format) || magnitude == 0) return RoundTo(format, x);
  if (!format.is_signed && sign != 0) return RoundTo(format, x);
  const Place at = PlaceOf(format, magnitude);
  if (at.shift <= 0) return x;
  // The part below the spacing, in units of 2^-32 of it.
  const std::uint64_t shifted = std::uint64_t{at.integer} << 32;
  const std::uint64_t place = at.shift < 64 ? shifted >> at.shift : 0;
  const auto below = static_cast<std::uint32_t>(place >> 32);
  const std::uint32_t up = random < static_cast<std::uint32_t>(place) ? 1 : 0;
  return Keep(format, sign, ScaledBits(below + up, at.unit + at.shift));
}

float OverflowThreshold(const NumberFormat& format) {
  ADA_CHECK(IsSupported(format));
  const Scaled largest = Largest(format);
  const std::uint32_t bits = LargestBits(format);
  // Halfway to the next value of the grid; a tie goes to the even of the two.
  const bool between = largest.integer < 0x800000u && largest.exponent > -149;
  if (!between) return std::bit_cast<float>(bits + 1);
  const std::uint32_t middle = ScaledBits(2 * largest.integer + 1, largest.exponent - 1);
  return std::bit_cast<float>(middle + (largest.integer % 2 == 0 ? 1 : 0));
}

std::uint16_t EncodeFp16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  std::uint32_t code;
  if (magnitude > kInfBits) {
    code = 0x7E00u | (magnitude >> 13 & 0x3FFu);  // quiet, payload kept, as vcvtps2ph does
  } else if (magnitude >= 0x477FF000u) {          // 65520: half a spacing above 65504
    code = 0x7C00u;
  } else if (magnitude >= 0x38800000u) {  // 2^-14: normal; a carry into the exponent is right
    code = (magnitude + 0xFFFu + (magnitude >> 13 & 1u) - 0x38000000u) >> 13;
  } else if (magnitude > 0x33000000u) {  // above 2^-25: subnormal, in units of 2^-24
    const std::uint32_t integer = (magnitude & 0x7FFFFFu) | 0x800000u;
    code = ShiftRightToEven(integer, 126 - static_cast<int>(magnitude >> 23));
  } else {
    code = 0;
  }
  return static_cast<std::uint16_t>(sign | code);
}

float DecodeFp16(std::uint16_t code) {
  const std::uint32_t sign = (code & 0x8000u) << 16;
  const std::uint32_t exponent = code >> 10 & 0x1Fu, mantissa = code & 0x3FFu;
  std::uint32_t bits;
  if (exponent == 0x1Fu) {
    bits = kInfBits | mantissa << 13 | (mantissa != 0 ? 0x400000u : 0u);
  } else if (exponent == 0) {
    bits = ScaledBits(mantissa, -24);
  } else {
    bits = (exponent + 112) << 23 | mantissa << 13;
  }
  return std::bit_cast<float>(sign | bits);
}

std::uint16_t EncodeBf16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7FFFFFFFu) > kInfBits) return static_cast<std::uint16_t>(bits >> 16 | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

float DecodeBf16(std::uint16_t code) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(code) << 16);
}

}  // namespace ada
