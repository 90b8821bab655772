// The functions of number_format.h: each asks the format's grid.
#include "number/number_grid.h"

#include <algorithm>
#include <cmath>

#include "error.h"
#include "number/number_format.h"
#include "number/table_grid.h"

namespace ada {
namespace {

int TopExponent(const ScaledInteger& x) { return TopBit(x.integer) + x.exponent; }

// These hold a format against what an fp32 can emulate; RefuseFormat says in words which one fails.
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
  const ScaledInteger largest = LargestOf(format);
  return LowestExponentOf(format) - format.mantissa_bits >= -149 && largest.integer != 0 &&
         TopExponent(largest) <= 127;
}
bool IsSupported(const NumberFormat& format) {
  return WidthsAreSupported(format) && CodesAreSupported(format) && RangeIsSupported(format);
}

// Without `magic`: on integers alone, so that no rounding mode or flush-to-zero flag of the
// processor changes a conversion.
NumberGrid PureGridOf(const NumberFormat& format) {
  if (format.table != 0) return GridOfTable(format);
  ADA_CHECK(IsSupported(format));
  NumberGrid grid = GridOf(format);
  grid.magic = 0;
  return grid;
}

}  // namespace

bool IsPowerOfTwo(double factor) {
  int exponent = 0;
  return std::frexp(factor, &exponent) == 0.5;
}

NumberGrid GridOfTable(const NumberFormat& format) {
  const TableGrid& table = TableGridAt(format.table);
  NumberGrid grid;
  grid.exact = false;
  grid.table = format.table, grid.saturates = format.saturate;
  grid.min_normal = BitsOf(static_cast<float>(table.smallest_normal));
  grid.below_min = BitsOf(static_cast<float>(table.smallest));
  grid.largest_value = table.largest;
  grid.largest = BitsOf(static_cast<float>(table.largest));
  grid.overflow_min = BitsOf(OverflowThreshold(table));
  grid.over = grid.largest;
  return grid;
}

float RoundByTable(std::uint16_t table, bool saturates, float x) {
  return RoundByTable(TableGridAt(table), static_cast<double>(x), saturates).value;
}

float RoundRandomlyByTable(std::uint16_t table, bool saturates, float x, std::uint32_t random) {
  return RoundByTable(TableGridAt(table), static_cast<double>(x), saturates, /*draws=*/true, random)
      .value;
}

double NumberFormat::smallest_subnormal() const {
  if (table != 0) return TableGridAt(table).smallest;
  return std::ldexp(1.0, LowestExponentOf(*this) - (is_signed ? mantissa_bits : 0));
}

double NumberFormat::smallest_normal() const {
  if (table != 0) return TableGridAt(table).smallest_normal;
  return std::ldexp(1.0, LowestExponentOf(*this));
}

double NumberFormat::largest() const {
  if (table != 0) return TableGridAt(table).largest;
  ADA_CHECK(IsSupported(*this));
  const ScaledInteger largest = LargestOf(*this);
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
  const ScaledInteger largest = LargestOf(format);
  if (largest.integer == 0) return "it has no number but zero; give it a bit more";
  const int smallest = LowestExponentOf(format) - format.mantissa_bits;
  return smallest < -149 ? "its smallest value, 2^" + std::to_string(smallest) +
                               ", lies below fp32's, 2^-149: lower bias or mantissa"
                         : "its largest value, 2^" + std::to_string(TopExponent(largest)) +
                               " or more, lies beyond fp32's: raise bias";
}

float RoundTo(const NumberFormat& format, float x) { return RoundToGrid(PureGridOf(format), x); }

float ToOddFloat(double x) {
  constexpr std::uint32_t kLargest = kInfinityBits - 1;
  if (std::isnan(x) || std::isinf(x)) return static_cast<float>(x);
  const auto nearest = static_cast<float>(x);
  if (static_cast<double>(nearest) == x) return nearest;
  // The neighbor towards zero is found from the nearest, which may lie on either side.
  std::uint32_t bits = MagnitudeBits(nearest);
  if (bits > kLargest) bits = kLargest;
  if (static_cast<double>(OfBits(bits)) > std::fabs(x)) --bits;
  return std::copysign(OfBits(bits | 1u), nearest);
}

float RoundTo(const NumberFormat& format, double x) {
  if (format.table != 0) return RoundByTable(TableGridAt(format.table), x, format.saturate).value;
  if (format == kFp32 || !std::isfinite(x)) return RoundTo(format, static_cast<float>(x));
  if (format.mantissa_bits <= kMostBitsOfOdd) return RoundTo(format, ToOddFloat(x));
  // Rounded to the format's spacing, x is an fp32, unless it lies beyond fp32's own end.
  const int lowest = LowestExponentOf(format);
  const int exponent = x == 0 ? lowest : std::max(std::ilogb(x), lowest);
  const double spacing = std::ldexp(1.0, exponent - format.mantissa_bits);
  return RoundTo(format, ToOddFloat(std::nearbyint(x / spacing) * spacing));
}

float RoundStochastically(const NumberFormat& format, float x, std::uint32_t random) {
  return RoundRandomlyToGrid(PureGridOf(format), x, random);
}

float OverflowThreshold(const NumberFormat& format) {
  return OfBits(PureGridOf(format).overflow_min);
}

std::uint16_t EncodeFp16(float x) { return Fp16CodeOf(x); }
float DecodeFp16(std::uint16_t code) { return OfFp16(code); }
std::uint16_t EncodeBf16(float x) { return Bf16CodeOf(x); }
float DecodeBf16(std::uint16_t code) { return OfBf16(code); }

const std::vector<NamedFormat>& NamedFormats() {
  static const std::vector<NamedFormat> formats = {
      {"fp32", kFp32},
      {"fp16", kFp16},
      {"bf16", kBf16},
      {"cb16", kCb16},
      {"fp8_e4m3", kFp8E4M3},
      {"fp8_e5m2", kFp8E5M2},
      {"fp8_e3m4", {3, 4, 3}},
      {"fp8_e4m3_ieee", {4, 3, 7}},
      {"fp8_e4m3_fnuz", {4, 3, 8, false, true, false}},
      {"fp8_e5m2_fnuz", {5, 2, 16, false, true, false}},
      {"fp8_e4m3_b11fnuz", {4, 3, 11, false, true, false}},
      {"fp6_e2m3", kFp6E2M3},
      {"fp6_e3m2", kFp6E3M2},
      {"fp4_e2m1", kFp4E2M1},
      {"fp4_e1m2", {1, 2, 1, false, false}},
      {"int8", {1, 6, -5, false, false}},
      {"int4", {1, 2, -1, false, false}},
      {"e8m0", {8, 0, 127, false, true, true, false, false}}};
  return formats;
}

std::string FormatName(const NumberFormat& format) {
  if (format.table != 0) return TableGridAt(format.table).name;
  for (const NamedFormat& named : NamedFormats()) {
    NumberFormat same = named.format;
    same.saturate = format.saturate;
    if (same == format) return std::string(named.name);
  }
  std::string text = "{exponent: " + std::to_string(format.exponent_bits) +
                     ", mantissa: " + std::to_string(format.mantissa_bits);
  const auto add = [&text](bool differs, const std::string& entry) {
    if (differs) text += ", " + entry;
  };
  add(format.bias != (1 << (format.exponent_bits - 1)) - 1, "bias: " + std::to_string(format.bias));
  add(!format.has_inf, "has_inf: false");
  add(!format.has_nan, "has_nan: false");
  add(!format.has_negative_zero, "negative_zero: false");
  add(format.saturate, "saturate: true");
  add(!format.is_signed, "signed: false");
  return text + "}";
}

std::uint32_t CodeOf(const NumberFormat& format, float value) {
  const std::uint32_t bits = BitsOf(value), magnitude = bits & 0x7fffffffu;
  const int width = format.exponent_bits + format.mantissa_bits;
  const std::uint32_t minus = 1u << width, sign = bits >> 31 << width;
  if (magnitude > kInfinityBits) return format.has_negative_zero ? sign | (minus - 1) : minus;
  const std::uint32_t top = (1u << format.exponent_bits) - 1;
  if (magnitude == kInfinityBits) return sign | top << format.mantissa_bits;
  if (magnitude == 0) return format.has_negative_zero ? sign : 0;
  const int lowest = LowestExponentOf(format);
  const int exponent = std::max(std::ilogb(OfBits(magnitude)), lowest);
  // The magnitude in units of its spacing, with the implicit bit of a normal value.
  const auto integer = static_cast<std::uint32_t>(
      std::ldexp(static_cast<double>(OfBits(magnitude)), format.mantissa_bits - exponent));
  const std::uint32_t one = 1u << format.mantissa_bits;
  if (integer < one) return sign | integer;
  return sign | static_cast<std::uint32_t>(exponent + format.bias) << format.mantissa_bits |
         (integer & (one - 1));
}

std::vector<float> ValuesOfCodes(const NumberFormat& format) {
  const int width = format.exponent_bits + format.mantissa_bits;
  ADA_CHECK(format.is_signed && width <= 15);
  const std::uint32_t half = 1u << width, one = 1u << format.mantissa_bits;
  const std::uint32_t largest = CodeOf(format, static_cast<float>(format.largest()));
  std::vector<float> values(std::size_t{2} * half);
  for (std::uint32_t code = 0; code < half; ++code) {
    const auto field = static_cast<int>(code >> format.mantissa_bits);
    const std::uint32_t integer = (code & (one - 1)) | (field == 0 ? 0 : one);
    float value = std::ldexp(static_cast<float>(integer),
                             (field == 0 ? 1 : field) - format.bias - format.mantissa_bits);
    if (code > largest)
      value = OfBits(format.has_inf && code == largest + 1 ? kInfinityBits : kQuietNanBits);
    values[code] = value, values[code + half] = -value;
  }
  if (!format.has_negative_zero) values[half] = OfBits(kQuietNanBits);
  return values;
}

}  // namespace ada
