// Neighbors are found in the sorted table of values; the mode chooses between them.
#include "number/tables/table_format.h"

#include <algorithm>
#include <cmath>

#include "error.h"
#include "number/number_format.h"

namespace ada {
namespace {

// binaryKpP: P - 1 stored bits of mantissa, the exponents of all other codes; the top codes are inf
// and, without a sign, NaN. With a sign NaN is the code of -0.
struct P3109 {
  int bits = 0, precision = 0;
  bool is_signed = true, extended = true;
};

std::string NameOf(const P3109& format) {
  return "binary" + std::to_string(format.bits) + "p" + std::to_string(format.precision) +
         (format.is_signed ? "s" : "u") + (format.extended ? "e" : "f");
}

std::vector<P3109> P3109Formats() {
  std::vector<P3109> formats;
  for (int bits = 3; bits <= 8; ++bits)
    for (const bool is_signed : {true, false})
      for (int precision = 1; precision <= (is_signed ? bits - 1 : bits); ++precision)
        for (const bool extended : {true, false})
          formats.push_back({bits, precision, is_signed, extended});
  return formats;
}

double P3109Value(const P3109& format, int code) {
  const int stored = format.precision - 1;
  const int bias = format.bits == format.precision
                       ? 1
                       : 1 << (format.bits - format.precision - (format.is_signed ? 1 : 0));
  const int field = code >> stored, mantissa = code & ((1 << stored) - 1);
  if (field == 0) return std::ldexp(mantissa, 1 - bias - stored);
  return std::ldexp(mantissa + (1 << stored), field - bias - stored);
}

TableFormat TableOfP3109(const P3109& format) {
  TableFormat table;
  table.name = NameOf(format);
  const int half = 1 << (format.bits - (format.is_signed ? 1 : 0));
  table.sign = static_cast<std::uint16_t>(format.is_signed ? half : 0);
  table.nan = static_cast<std::uint16_t>(format.is_signed ? half : half - 1);
  table.has_inf = format.extended;
  const int values = half - (format.is_signed ? 0 : 1) - (format.extended ? 1 : 0);
  for (int code = 0; code < values; ++code) {
    table.magnitudes.push_back(P3109Value(format, code));
    table.codes.push_back(static_cast<std::uint16_t>(code));
  }
  table.next = P3109Value(format, values);
  table.bits = format.bits;
  table.normal_from = P3109Value(format, 1 << (format.precision - 1));
  table.inf = static_cast<std::uint16_t>(format.extended ? values : 0);
  return table;
}

// The leading bits say how many follow of the exponent, whose first one is its sign and whose
// highest other one is implicit: 11 four, 10 three, 01 two, 001 one, 0001 none; 0000 the powers of
// two from 2^-22 to 2^-16. What is left is mantissa.
double HiFloat8Value(int code) {
  const auto scaled = [](int mantissa, int bits, int exponent) {
    return std::ldexp(mantissa + (1 << bits), exponent - bits);
  };
  const auto exponent = [](int field, int bits) {
    const int magnitude = (1 << (bits - 1)) | (field & ((1 << (bits - 1)) - 1));
    return field >> (bits - 1) != 0 ? -magnitude : magnitude;
  };
  if (code >= 0x60) return scaled(code & 1, 1, exponent(code >> 1 & 15, 4));
  if (code >= 0x40) return scaled(code & 3, 2, exponent(code >> 2 & 7, 3));
  if (code >= 0x20) return scaled(code & 7, 3, exponent(code >> 3 & 3, 2));
  if (code >= 0x10) return scaled(code & 7, 3, exponent(code >> 3 & 1, 1));
  if (code >= 0x08) return scaled(code & 7, 3, 0);
  return code == 0 ? 0 : std::ldexp(1.0, code - 23);
}

TableFormat HiFloat8() {
  constexpr int kInf = 0x6f;
  TableFormat table;
  table.name = "hifloat8";
  table.sign = 128, table.nan = 128, table.inf = kInf, table.has_inf = true;
  table.ties_away = table.tapered = true;
  table.bits = 8, table.normal_from = 0x1p-15;
  for (int code = 0; code < 128; ++code)
    if (code != kInf) table.codes.push_back(static_cast<std::uint16_t>(code));
  std::sort(table.codes.begin(), table.codes.end(),
            [](int a, int b) { return HiFloat8Value(a) < HiFloat8Value(b); });
  for (const std::uint16_t code : table.codes) table.magnitudes.push_back(HiFloat8Value(code));
  table.next = HiFloat8Value(kInf);
  return table;
}

// The unsigned scale of blocks: numbers and one NaN, at the top.
TableFormat UE5M3() {
  TableFormat table = TableOf(NumberFormat{5, 3, 15, false, true});
  table.name = "ue5m3";
  table.sign = 0, table.has_negative_zero = false;
  table.bits = 8;
  return table;
}

// Whether the magnitude between `low` and `high`, the places at and after `index`, is rounded up.
// part: where it lies between the two, 0 to 1, neither end included.
bool IsRoundedUp(TableRounding rounding, double part, std::size_t index, bool negative, int bits,
                 std::uint32_t random) {
  const bool even = index % 2 == 0;
  const double steps = std::ldexp(1.0, bits);
  const double drawn = static_cast<double>(random & ((1u << bits) - 1));
  switch (rounding) {
    case TableRounding::kDefault:
    case TableRounding::kNearestEven:
      return part > 0.5 || (part == 0.5 && !even);
    case TableRounding::kNearestAway:
      return part >= 0.5;
    case TableRounding::kTowardZero:
      return false;
    case TableRounding::kTowardPositive:
      return !negative;
    case TableRounding::kTowardNegative:
      return negative;
    case TableRounding::kTowardOdd:
      return even;
    case TableRounding::kStochasticA:
      return std::floor(part * steps) + drawn >= steps;
    case TableRounding::kStochasticB:
      return std::floor(part * 2 * steps) + 2 * drawn + 1 >= 2 * steps;
    case TableRounding::kStochasticC:
      return std::nearbyint(part * steps) + drawn >= steps;
  }
  return false;
}

}  // namespace

double TableFormat::ValueOf(std::uint16_t code) const {
  const auto magnitude = [this](std::uint16_t positive) {
    if (has_inf && positive == inf) return HUGE_VAL;
    const auto found = std::find(codes.begin(), codes.end(), positive);
    return found == codes.end() ? std::nan("")
                                : magnitudes[static_cast<std::size_t>(found - codes.begin())];
  };
  if (has_nan && code == nan) return std::nan("");
  if (sign == 0 || (code & sign) == 0) return magnitude(code);
  return -magnitude(static_cast<std::uint16_t>(code & ~sign));
}

// P3109, 4.7: the magnitude is rounded as if the grid went on, then what lies beyond the largest
// value becomes that value, inf or NaN. Rounding toward zero does not leave the finite values.
std::uint16_t TableFormat::CodeOf(double x, const TableModes& modes, std::uint32_t random) const {
  if (std::isnan(x)) return has_nan ? nan : codes[0];
  const bool negative = std::signbit(x);
  const auto with_sign = [&](std::uint16_t code) {
    return static_cast<std::uint16_t>(negative ? code | sign : code);
  };
  const double magnitude = std::fabs(x);
  TableRounding rounding = modes.rounding;
  if (rounding == TableRounding::kDefault)
    rounding = ties_away ? TableRounding::kNearestAway : TableRounding::kNearestEven;
  const bool infinite = std::isinf(x), saturates = modes.overflow != TableOverflow::kNone;
  // Down in magnitude, for a positive or a negative value.
  const bool shortens =
      rounding == TableRounding::kTowardZero ||
      rounding == (negative ? TableRounding::kTowardPositive : TableRounding::kTowardNegative);
  std::size_t index = static_cast<std::size_t>(
      std::upper_bound(magnitudes.begin(), magnitudes.end(), magnitude) - magnitudes.begin() - 1);
  bool beyond = magnitude >= next;
  if (!beyond && magnitude > magnitudes[index]) {
    const bool last = index + 1 == magnitudes.size();
    const double low = magnitudes[index], high = last ? next : magnitudes[index + 1];
    if (IsRoundedUp(rounding, (magnitude - low) / (high - low), index, negative, modes.random_bits,
                    random)) {
      beyond = last;
      if (!last) ++index;
    }
  }
  if (negative && sign == 0 && (beyond || magnitudes[index] > 0)) {
    if (saturates) return codes[0];
    return shortens && !infinite ? codes[0] : nan;
  }
  if (!beyond) {
    if (index == 0) return has_negative_zero ? with_sign(codes[0]) : codes[0];
    return with_sign(codes[index]);
  }
  const bool odd_without_sign = rounding == TableRounding::kTowardOdd && sign == 0;
  const bool keeps_inf = modes.overflow == TableOverflow::kSaturateFinite && infinite && has_inf;
  const bool finite =
      saturates ? !keeps_inf
                : (!has_inf && !beyond_is_nan) || ((shortens || odd_without_sign) && !infinite);
  if (finite) return with_sign(codes.back());
  return has_inf ? with_sign(inf) : nan;
}

std::optional<TableFormat> TableFormatNamed(std::string_view name) {
  if (name == "hifloat8") return HiFloat8();
  if (name == "ue5m3") return UE5M3();
  for (const P3109& format : P3109Formats())
    if (NameOf(format) == name) return TableOfP3109(format);
  return std::nullopt;
}

std::vector<std::string> TableFormatNames() {
  std::vector<std::string> names = {"hifloat8", "ue5m3"};
  for (const P3109& format : P3109Formats()) names.push_back(NameOf(format));
  return names;
}

TableFormat TableOf(const NumberFormat& format) {
  const int width = format.exponent_bits + format.mantissa_bits;
  ADA_CHECK(format.is_signed && width <= 15);
  const std::vector<float> values = ValuesOfCodes(format);
  TableFormat table;
  table.name = FormatName(format);
  table.sign = static_cast<std::uint16_t>(1u << width);
  table.has_nan = format.has_nan;
  table.nan = static_cast<std::uint16_t>(format.has_negative_zero ? table.sign - 1 : table.sign);
  table.has_inf = format.has_inf;
  table.bits = width + 1, table.normal_from = format.smallest_normal();
  table.has_negative_zero = format.has_negative_zero;
  table.beyond_is_nan = format.has_nan;
  for (std::uint32_t code = 0; code < table.sign; ++code) {
    if (!std::isfinite(values[code])) continue;
    table.magnitudes.push_back(static_cast<double>(values[code]));
    table.codes.push_back(static_cast<std::uint16_t>(code));
  }
  table.inf = static_cast<std::uint16_t>(table.codes.back() + 1);
  const double top = table.largest(), below = table.magnitudes[table.magnitudes.size() - 2];
  table.next = top + (format.mantissa_bits == 0 ? top : top - below);
  return table;
}

// Spacings follow from the values in a binade, or from the one value and what comes after it.
TableGrid TableGridOf(const TableFormat& table, const TableModes& modes) {
  TableGrid grid;
  grid.name = table.name;
  grid.modes = modes;
  grid.is_signed = table.sign != 0;
  grid.has_inf = table.has_inf, grid.has_nan = table.has_nan;
  grid.has_negative_zero = table.has_negative_zero;
  grid.ties_away = table.ties_away, grid.beyond_is_nan = table.beyond_is_nan;
  grid.smallest = table.magnitudes[1], grid.largest = table.largest(), grid.next = table.next;
  for (std::size_t i = 1; i < table.magnitudes.size(); ++i) {
    const double at = table.magnitudes[i];
    const int exponent = std::ilogb(at);
    if (at > std::ldexp(1.0, exponent)) continue;
    const double after = i + 1 < table.magnitudes.size() ? table.magnitudes[i + 1] : table.next;
    const int bits = exponent - std::ilogb(after - at);
    grid.binades[static_cast<std::size_t>(exponent - TableGrid::kLowest)] = {
        static_cast<std::int8_t>(bits), i % 2 == 1};
  }
  grid.smallest_normal = table.normal_from;
  grid.has_exponents = !table.tapered && grid.is_signed;
  return grid;
}

std::optional<NumberFormat> TableNumberFormatNamed(std::string_view name) {
  const std::optional<TableFormat> table = TableFormatNamed(name);
  if (!table) return std::nullopt;
  const TableGrid grid = TableGridOf(*table);
  int mantissa = 0;
  for (const TableGrid::Binade& binade : grid.binades)
    mantissa = std::max<int>(mantissa, binade.bits);
  NumberFormat format;
  format.mantissa_bits = mantissa;
  format.exponent_bits = std::max(table->bits - 1 - mantissa, 1);
  format.bias = 1 - mantissa - std::ilogb(grid.smallest);
  format.has_inf = grid.has_inf, format.has_nan = grid.has_nan;
  format.has_negative_zero = grid.has_negative_zero;
  format.table = NumberOf(grid);
  return format;
}

}  // namespace ada
