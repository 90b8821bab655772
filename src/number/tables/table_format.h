// Number formats as tables of their values: those that {exponent, mantissa} cannot say, and any
// other of at most 16 bits, with every rounding and overflow mode of IEEE P3109. A definition
// without regard to speed, for files; training rounds by number/number_grid.h.
//   IEEE P3109 (interim report, version 4.0): binaryKpP and s or u (signed, unsigned), e or f
//     (with infinities, without)
//   HiFloat8 (Luo et al., arXiv 2409.16626): 7, 15, 31 ... values with a tapered mantissa
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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
};

// The finite values from zero on, by rising magnitude, and their codes; a negative value has the
// code of its magnitude plus `sign`.
struct TableFormat {
  std::string name;
  std::vector<double> magnitudes;
  std::vector<std::uint16_t> codes;
  double next = 0;         // what the grid would go on with after the largest value
  std::uint16_t sign = 0;  // 0: no negative values
  std::uint16_t nan = 0;
  bool has_nan = true, has_inf = false, has_negative_zero = false;
  std::uint16_t inf = 0;
  bool ties_away = false;
  // Beyond the largest value without saturation: NaN. Otherwise inf or, without one, that value.
  bool beyond_is_nan = false;

  double largest() const { return magnitudes.back(); }
  // The value of a code, NaN for codes of NaN and those without a value.
  double ValueOf(std::uint16_t code) const;
  // Rounds x, whose random bits are the low ones of `random`.
  std::uint16_t CodeOf(double x, const TableModes& modes, std::uint32_t random = 0) const;
};

// binary8p3se and so on, hifloat8, ue5m3. nullopt: none of this name.
std::optional<TableFormat> TableFormatNamed(std::string_view name);
std::vector<std::string> TableFormatNames();
// The table of a signed format of at most 16 bits.
TableFormat TableOf(const NumberFormat& format);

}  // namespace ada
