// Number formats as tables of their values: those that {exponent, mantissa} cannot say, and any
// other of at most 16 bits, with every rounding and overflow mode of IEEE P3109. A definition
// without regard to speed, for files; training rounds by number/table_grid.h.
//   IEEE P3109 (interim report, version 4.0): binaryKpP and s or u (signed, unsigned), e or f
//     (with infinities, without)
//   HiFloat8 (Luo et al., arXiv 2409.16626): 7, 15, 31 ... values with a tapered mantissa
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "number/number_format.h"
#include "number/table_grid.h"

namespace ada {

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
  bool ties_away = false, tapered = false;
  int bits = 0;            // of a code
  double normal_from = 0;  // below it values have fewer bits, or are further apart
  // Beyond the largest value without saturation: NaN. Otherwise inf or, without one, that value.
  bool beyond_is_nan = false;

  double largest() const { return magnitudes.back(); }
  // The value of a code, NaN for codes of NaN and those without a value.
  double ValueOf(std::uint16_t code) const;
  // Rounds x, whose random bits are the low ones of `random`.
  std::uint16_t CodeOf(double x, const TableModes& modes, std::uint32_t random = 0) const;
};

// P3109's roundings, in the order of TableRounding from kNearestEven on.
inline constexpr std::array<const char*, 9> kTableRoundingNames = {
    "nearest_even", "nearest_away", "toward_zero",  "toward_positive", "toward_negative",
    "toward_odd",   "stochastic_a", "stochastic_b", "stochastic_c"};

// binary8p3se and so on, hifloat8, ue5m3. nullopt: none of this name.
std::optional<TableFormat> TableFormatNamed(std::string_view name);
std::vector<std::string> TableFormatNames();
// The table of a signed format of at most 16 bits.
TableFormat TableOf(const NumberFormat& format);
// The grid of a table, which rounds to the same values; and the format that is rounded by it.
TableGrid TableGridOf(const TableFormat& table, const TableModes& modes = {});
// nullopt: no name of a table.
std::optional<NumberFormat> TableNumberFormatNamed(std::string_view name);

}  // namespace ada
