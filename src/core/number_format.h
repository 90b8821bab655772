// Number formats as plain values: how many bits, which bias, what lies beyond the largest number.
// Conversion here is the scalar definition that every vectorized kernel must agree with bit for
// bit.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ada {

// A binary floating-point format with a sign bit: subnormals kept, nearest rounding with ties to
// even. What the codes of the top exponent mean decides three families:
//   has_inf                          IEEE 754: inf and NaN (fp16, bf16, cb16, fp8_e5m2)
//   !has_inf, has_nan                numbers, but for the code of all ones: NaN ("fn": fp8_e4m3);
//     and without a negative zero    numbers; NaN is the code of -0 ("fnuz")
//   !has_inf, !has_nan               numbers only (fp6, fp4)
// Unsigned formats are meant for scales (e8m0): positive numbers and NaN alone, no zero and no
// subnormals; the exponent's code 0 is an exponent like the others. Zero and below become NaN.
struct NumberFormat {
  int exponent_bits = 8;
  int mantissa_bits = 23;  // stored bits, without the implicit one
  int bias = 127;
  bool has_inf = true;
  bool has_nan = true;
  bool has_negative_zero = true;
  // Beyond the largest value, inf included: the largest value. Otherwise inf, or NaN where there is
  // no inf; formats without NaN always saturate (a NaN becomes a zero, as in ml_dtypes).
  bool saturate = false;
  bool is_signed = true;
  friend bool operator==(const NumberFormat&, const NumberFormat&) = default;

  double smallest_subnormal() const;  // 2^(1 - bias - mantissa_bits); fp16: 2^-24
  double smallest_normal() const;     // 2^(1 - bias); unsigned: 2^-bias, the smallest of all
  double largest() const;             // largest finite value; fp16: 65504
};

// Whether a factor is a positive power of two: it moves exponents alone, so that a product with it
// rounds nothing within range.
bool IsPowerOfTwo(double factor);

inline constexpr NumberFormat kFp32{8, 23, 127};
inline constexpr NumberFormat kFp16{5, 10, 15};
inline constexpr NumberFormat kBf16{8, 7, 127};
inline constexpr NumberFormat kCb16{6, 9, 31};
inline constexpr NumberFormat kFp8E4M3{4, 3, 7, false};
inline constexpr NumberFormat kFp8E5M2{5, 2, 15};
// Formats of 6 and 4 bits, as OCP Microscaling Formats 1.0 defines them.
inline constexpr NumberFormat kFp6E2M3{2, 3, 1, false, false};
inline constexpr NumberFormat kFp6E3M2{3, 2, 3, false, false};
inline constexpr NumberFormat kFp4E2M1{2, 1, 1, false, false};

// Why values of `format` cannot be emulated exactly in fp32 (widths, bias, codes), or nothing. The
// text follows a name or a place: "exponent is 9 bits wide; 1 to 8 are possible".
std::string RefuseFormat(const NumberFormat& format);

// The nearest value of `format` to `x` (ties to even), as an fp32. A finite value beyond the
// largest plus half a spacing (a format without inf: a tie rounds to the largest where that is
// even) becomes what the format says. The result of fp32 is `x` itself.
float RoundTo(const NumberFormat& format, float x);
// The same of a double, which is rounded once: not to fp32 first.
float RoundTo(const NumberFormat& format, double x);
// An fp32 that every format of at most 21 mantissa bits rounds and counts as it does `x`: towards
// zero where x is no fp32, with the last bit set then, so that it is no number of those formats and
// no tie between two (rounding to odd; Boldo and Melquiond, When Double Rounding is Odd, 2005).
float ToOddFloat(double x);
inline constexpr int kMostBitsOfOdd = 21;

// The smallest magnitude that overflows: from it on, RoundTo saturates or gives inf or NaN. Inf
// where every finite value has a nearest one in `format` (fp32). fp16: 65520.
float OverflowThreshold(const NumberFormat& format);

// Stochastic rounding: of the two neighbors of `x` the upper (in magnitude) with the probability
// of x's place between them, decided by the 32 bits of `random`; exact values stay. From the
// largest value on as RoundTo, which also decides what overflows.
float RoundStochastically(const NumberFormat& format, float x, std::uint32_t random);

// The name used in YAML and CSV (fp16; `saturate` is left out of the comparison), or a YAML map
// {exponent: E, mantissa: M, ...} of what differs from the IEEE rules for an unnamed format.
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
