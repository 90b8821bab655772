// Rounding of formats that {exponent, mantissa} cannot say, or by a mode that number_grid.h does
// not have: the spacing of values in each power of two, and what lies at both ends. A format has
// the number of such a grid (NumberFormat::table); tables/table_format.h defines values and modes.
#pragma once
#include <array>
#include <cstdint>
#include <string>

#include "number/number_format.h"

namespace ada {

// P3109's modes. kDefault: the format's own, to nearest; ties to even, in HiFloat8 away from zero.
enum class TableRounding : std::uint8_t {
  kDefault,
  kNearestEven,
  kNearestAway,
  kTowardZero,
  kTowardPositive,
  kTowardNegative,
  kTowardOdd,
  kStochasticA,
  kStochasticB,
  kStochasticC
};
// What becomes of values beyond the largest: what the format says (kNone), the largest value also
// for inf (kSaturate, P3109's SatFinite), the largest value but for inf (kSaturateFinite,
// SatPropagate).
enum class TableOverflow : std::uint8_t { kNone, kSaturate, kSaturateFinite };
bool IsStochastic(TableRounding rounding);

// How values are rounded: kStochastic modes draw `random_bits` bits a value.
struct TableModes {
  TableRounding rounding = TableRounding::kDefault;
  TableOverflow overflow = TableOverflow::kNone;
  int random_bits = 8;
  friend bool operator==(const TableModes&, const TableModes&) = default;
};

// Values from the smallest on: between 2^e and 2^(e + 1) they are 2^(e - bits) apart, beginning
// with 2^e. All of them are fp32 numbers.
struct TableGrid {
  static constexpr int kLowest = -150, kHighest = 128;
  struct Binade {
    std::int8_t bits = 0;
    bool odd = false;  // whether 2^e has an odd place among the values from zero on
  };
  std::string name;
  TableModes modes;
  std::array<Binade, kHighest - kLowest + 1> binades{};  // by e - kLowest
  double smallest = 0, smallest_normal = 0, largest = 0;
  double next = 0;  // what the grid would go on with after the largest value
  bool is_signed = true, has_inf = false, has_nan = true, has_negative_zero = false;
  bool ties_away = false, beyond_is_nan = false;
  // Values are those of some {exponent, mantissa}, so that a sum may align their exponents.
  bool has_exponents = true;
  friend bool operator==(const TableGrid&, const TableGrid&);
};

// A value after rounding. left: it was finite and the format has no such value: it became inf, NaN
// or, where it saturates, the largest one.
struct TableRounded {
  float value;
  bool left;
};
// random: whose low bits decide, in stochastic modes; `draws`: it is given. Without it they round
// to nearest; with it, and any other mode but kDefault, that mode is taken; kDefault then is
// stochastic as RoundStochastically is, by all 32 bits.
TableRounded RoundByTable(const TableGrid& grid, double x, bool saturate, bool draws = false,
                          std::uint32_t random = 0);

// The number of a grid, the same for equal ones. Throws ConfigError after some thousands.
std::uint16_t NumberOf(const TableGrid& grid);
const TableGrid& TableGridAt(std::uint16_t number);  // 1 ..
// The smallest magnitude that leaves the format when it is rounded to nearest, or by the mode that
// the grid has; the smaller one of both signs.
float OverflowThreshold(const TableGrid& grid);

// The grid of a format by its bits, with modes: of any width.
TableGrid TableGridOf(const NumberFormat& format, const TableModes& modes);
// `format` rounded by other modes; itself where these are its own. fp32 stays what it is.
NumberFormat WithModes(const NumberFormat& format, const TableModes& modes);

}  // namespace ada
