// Number formats as plain values: how many bits, which bias, what lies beyond the largest number.
// Conversion here is the scalar definition that every vectorised kernel must agree with bit for
// bit.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ada {

// A binary floating-point format with a sign bit. Values are those of IEEE 754: subnormals kept,
// nearest rounding with ties to even.
struct NumberFormat {
  int exponent_bits = 8;
  int mantissa_bits = 23;  // stored bits, without the implicit one
  int bias = 127;
  bool has_inf = true;  // false: the top exponent holds numbers too (not used before FP8)
  friend bool operator==(const NumberFormat&, const NumberFormat&) = default;

  double smallest_subnormal() const;  // 2^(1 - bias - mantissa_bits); fp16: 2^-24
  double smallest_normal() const;     // 2^(1 - bias)
  double largest() const;             // largest finite value; fp16: 65504
};

inline constexpr NumberFormat kFp32{8, 23, 127, true};
inline constexpr NumberFormat kFp16{5, 10, 15, true};
inline constexpr NumberFormat kBf16{8, 7, 127, true};

// The nearest value of `format` to `x` (ties to even), as an fp32; beyond the largest value plus
// half a spacing: inf. NaN stays NaN. The result of fp32 is `x` itself.
float RoundTo(const NumberFormat& format, float x);

// The name used in YAML and CSV (fp16), or {exponent: E, mantissa: M} for an unnamed format.
std::string FormatName(const NumberFormat& format);
struct NamedFormat {
  std::string_view name;
  NumberFormat format;
};
// All formats of this build in the order in which `ada-train formats` lists them.
const std::vector<NamedFormat>& NamedFormats();

// 16-bit storage codes of fp16 and bf16 (the bit patterns kept in memory).
std::uint16_t EncodeFp16(float x);
float DecodeFp16(std::uint16_t code);
std::uint16_t EncodeBf16(float x);
float DecodeBf16(std::uint16_t code);

}  // namespace ada
