// The scalar conversions, on bits and integers alone: no rounding mode or flush-to-zero flag of the
// processor changes them. RoundTo is general; the 16-bit codes have a way of their own.
#include "core/number_format.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/error.h"

namespace ada {
namespace {

constexpr std::uint32_t kInfBits = 0x7F800000u;

int LargestExponent(const NumberFormat& format) {
  return (1 << format.exponent_bits) - 2 - format.bias;
}

// Whether every value of the format is an fp32, and the top exponent means inf and NaN.
bool IsSupported(const NumberFormat& format) {
  return format.has_inf && format.exponent_bits >= 2 && format.exponent_bits <= 8 &&
         format.mantissa_bits >= 1 && format.mantissa_bits <= 23 &&
         1 - format.bias - format.mantissa_bits >= -149 && LargestExponent(format) >= -126 &&
         LargestExponent(format) <= 127;
}

// value >> shift, nearest, ties to even; 1 <= shift <= 24.
std::uint32_t ShiftRightToEven(std::uint32_t value, int shift) {
  const std::uint32_t odd = (value >> shift) & 1u;
  return (value + (1u << (shift - 1)) - 1u + odd) >> shift;
}

// Bits of integer * 2^exponent, which must be an fp32; integer <= 2^24.
std::uint32_t ScaledBits(std::uint32_t integer, int exponent) {
  if (integer == 0) return 0;
  const int leading = std::bit_width(integer) - 1;
  if (leading + exponent < -126) return integer << (exponent + 149);
  const std::uint32_t mantissa = (integer << (24 - leading) >> 1) & 0x7FFFFFu;
  return static_cast<std::uint32_t>(leading + exponent + 127) << 23 | mantissa;
}

std::uint32_t RoundMagnitude(const NumberFormat& format, std::uint32_t magnitude) {
  if (magnitude == 0) return 0;
  const auto field = static_cast<int>(magnitude >> 23);
  const std::uint32_t integer = (magnitude & 0x7FFFFFu) | (field == 0 ? 0u : 0x800000u);
  const int unit = std::max(field, 1) - 150;  // |x| = integer * 2^unit
  const int exponent = std::bit_width(integer) - 1 + unit;
  const int spacing = std::max(exponent, 1 - format.bias) - format.mantissa_bits;
  const int shift = spacing - unit;
  if (shift <= 0) return magnitude;
  if (shift > 24) return 0;  // below half of the smallest subnormal
  return ScaledBits(ShiftRightToEven(integer, shift), spacing);
}

}  // namespace

double NumberFormat::smallest_subnormal() const {
  return std::ldexp(1.0, 1 - bias - mantissa_bits);
}

double NumberFormat::smallest_normal() const { return std::ldexp(1.0, 1 - bias); }

double NumberFormat::largest() const {
  ADA_CHECK(has_inf);
  return std::ldexp(2 - std::ldexp(1.0, -mantissa_bits), LargestExponent(*this));
}

float RoundTo(const NumberFormat& format, float x) {
  ADA_CHECK(IsSupported(format));
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = bits & 0x80000000u, magnitude = bits ^ sign;
  if (magnitude >= kInfBits || format == kFp32) return x;
  const std::uint32_t rounded = RoundMagnitude(format, magnitude);
  const std::uint32_t beyond = static_cast<std::uint32_t>(LargestExponent(format) + 128) << 23;
  return std::bit_cast<float>(sign | (rounded >= beyond ? kInfBits : rounded));
}

const std::vector<NamedFormat>& NamedFormats() {
  static const std::vector<NamedFormat> formats = {
      {"fp32", kFp32}, {"fp16", kFp16}, {"bf16", kBf16}};
  return formats;
}

std::string FormatName(const NumberFormat& format) {
  for (const NamedFormat& named : NamedFormats()) {
    if (named.format == format) return std::string(named.name);
  }
  return "{exponent: " + std::to_string(format.exponent_bits) +
         ", mantissa: " + std::to_string(format.mantissa_bits) + "}";
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
