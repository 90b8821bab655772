// Number formats as plain values: how many bits, which bias, what happens beyond the largest
// number. The conversion here is the scalar definition, with which every vectorized kernel must
// agree bit for bit.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ada {

// A binary floating-point format with a sign bit; subnormals are kept, and rounding is to nearest
// with ties to even. The meaning of the codes with the top exponent defines three families:
//   has_inf                          IEEE 754: inf and NaN (fp16, bf16, cb16, fp8_e5m2)
//   !has_inf, has_nan                numbers, but for the code of all ones: NaN ("fn": fp8_e4m3);
//     and without a negative zero    numbers; NaN is the code of -0 ("fnuz")
//   !has_inf, !has_nan               numbers only (fp6, fp4)
// Unsigned formats are meant for scales (e8m0): only positive numbers and NaN, no zero and no
// subnormals; exponent code 0 is an ordinary exponent. Zero and below become NaN.
struct NumberFormat {
  int exponent_bits = 8;
  int mantissa_bits = 23;  // stored bits, without the implicit one
  int bias = 127;
  bool has_inf = true;
  bool has_nan = true;
  bool has_negative_zero = true;
  // If true, values beyond the largest one (and inf) become the largest value. Otherwise inf, or
  // NaN if there is no inf; formats without NaN always saturate (NaN: zero, as in ml_dtypes).
  bool saturate = false;
  bool is_signed = true;
  // Not 0: values are rounded by this grid (number/table_grid.h), which also has the format's name;
  // the fields above then say how wide it is and, where they can, where its exponents begin.
  std::uint16_t table = 0;
  friend bool operator==(const NumberFormat&, const NumberFormat&) = default;

  double smallest_subnormal() const;  // 2^(1 - bias - mantissa_bits); fp16: 2^-24
  double smallest_normal() const;     // 2^(1 - bias); unsigned: 2^-bias, the smallest of all
                                      // (with a table: from where on values have all bits)
  double largest() const;             // largest finite value; fp16: 65504
};

// Whether a factor is a positive power of two, which only changes exponents, so that a product with
// it is exact within range.
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

// Why values of `format` cannot be emulated exactly in fp32 (widths, bias, codes), or "". The text
// is meant to follow a name or a place: "exponent is 9 bits wide; 1 to 8 are possible".
std::string RefuseFormat(const NumberFormat& format);

// The nearest value of `format` to `x` (ties to even), as fp32. A finite value beyond the largest
// plus half a spacing (without inf: a tie rounds to the largest if that is even) becomes what the
// format specifies. For fp32 the result is `x` itself.
float RoundTo(const NumberFormat& format, float x);
// The same for a double, which is rounded once, not to fp32 first.
float RoundTo(const NumberFormat& format, double x);
// An fp32 that every format of at most 21 mantissa bits rounds and counts like `x`: if x is no
// fp32, it is rounded towards zero and its last bit set, so that it is neither a number of those
// formats nor a tie (rounding to odd; Boldo and Melquiond, When Double Rounding is Odd, 2005).
float ToOddFloat(double x);
inline constexpr int kMostBitsOfOdd = 21;

// The smallest magnitude that overflows: from there on RoundTo saturates or gives inf or NaN. Inf
// if every finite value has a nearest value in `format` (fp32). fp16: 65520.
float OverflowThreshold(const NumberFormat& format);

// Stochastic rounding: to the larger (in magnitude) of the two neighbors of `x` with a probability
// equal to the relative distance of x from the smaller, decided by the 32 bits of `random`; exact
// values stay. From the largest value on like RoundTo, which also decides what overflows.
float RoundStochastically(const NumberFormat& format, float x, std::uint32_t random);

// The name used in YAML and CSV (fp16; `saturate` is ignored), or for an unnamed format a YAML map
// {exponent: E, mantissa: M, ...} of what differs from the IEEE rules.
std::string FormatName(const NumberFormat& format);
struct NamedFormat {
  std::string_view name;
  NumberFormat format;
};
// All formats of this build in the order in which `ada-train formats` lists them.
const std::vector<NamedFormat>& NamedFormats();

// 16-bit codes of fp16 and bf16 (the bit patterns in memory).
std::uint16_t EncodeFp16(float x);
float DecodeFp16(std::uint16_t code);
std::uint16_t EncodeBf16(float x);
float DecodeBf16(std::uint16_t code);

// --- More formats, and the codes of all formats ---

inline constexpr NumberFormat kFp4E1M2{1, 2, 1, false, false};  // 0, 0.25 .. 1.75
// Whole numbers of both signs, -127 .. 127 and -7 .. 7, as formats of one exponent bit, whose
// values are all equally far apart; mxint8's elements are 64 times smaller.
inline constexpr NumberFormat kInt8{1, 6, -5, false, false}, kInt4{1, 2, -1, false, false};
inline constexpr NumberFormat kMxInt8{1, 6, 1, false, false};
// Whether its values are whole numbers, all of them up to the largest.
inline constexpr bool IsInteger(const NumberFormat& format) {
  return format.exponent_bits == 1 && !format.has_inf && !format.has_nan &&
         format.bias == 1 - format.mantissa_bits;
}

// The code of a value that is in a signed `format`: the sign on top, then exponent and mantissa.
// NaN has all ones below its sign, or the code of -0 in a format without one.
std::uint32_t CodeOf(const NumberFormat& format, float value);
// The value of each code of a signed format of at most 16 bits.
std::vector<float> ValuesOfCodes(const NumberFormat& format);

}  // namespace ada
