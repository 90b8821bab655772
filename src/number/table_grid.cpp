// The bits of a double hold every fp32 value as a normal number, so that one rule serves all
// binades: what lies below the spacing is cut off, and a carry goes into the exponent.
#include "number/table_grid.h"

#include <atomic>
#include <cmath>
#include <memory>
#include <mutex>
#include <tuple>

#include "error.h"

namespace ada {
namespace {

constexpr int kDoubleBits = 52;

// Whether a magnitude is rounded up whose part above the value below it is rest / 2^shift.
struct Position {
  std::uint64_t rest;  // not 0
  int shift;           // 29 to 60
  bool even;           // the value below has an even place
  bool negative;
};
// The first `bits` bits of the part.
std::uint64_t LeadingBits(const Position& at, int bits) {
  return at.shift < bits ? at.rest << (bits - at.shift) : at.rest >> (at.shift - bits);
}

bool RoundsUp(TableRounding rounding, const Position& at, int bits, std::uint32_t random) {
  const std::uint64_t half = std::uint64_t{1} << (at.shift - 1), steps = std::uint64_t{1} << bits;
  const std::uint64_t drawn = random & (steps - 1);
  switch (rounding) {
    case TableRounding::kDefault:
    case TableRounding::kNearestEven:
      return at.rest > half || (at.rest == half && !at.even);
    case TableRounding::kNearestAway:
      return at.rest >= half;
    case TableRounding::kTowardZero:
      return false;
    case TableRounding::kTowardPositive:
      return !at.negative;
    case TableRounding::kTowardNegative:
      return at.negative;
    case TableRounding::kTowardOdd:
      return at.even;
    case TableRounding::kStochasticA:
      return LeadingBits(at, bits) + drawn >= steps;
    case TableRounding::kStochasticB:
      return LeadingBits(at, bits + 1) + 2 * drawn + 1 >= 2 * steps;
    case TableRounding::kStochasticC: {  // the part to nearest, ties to even
      const std::uint64_t lead = LeadingBits(at, bits);
      const std::uint64_t tail = at.rest - (lead << (at.shift - bits));
      const std::uint64_t middle = std::uint64_t{1} << (at.shift - bits - 1);
      const bool up = tail > middle || (tail == middle && lead % 2 == 1);
      return lead + (up ? 1 : 0) + drawn >= steps;
    }
  }
  return false;
}

const TableGrid::Binade& BinadeAt(const TableGrid& grid, int exponent) {
  return grid.binades[static_cast<std::size_t>(exponent - TableGrid::kLowest)];
}

// The magnitude on a grid without an end. `decide`: whether it is rounded up.
template <class Decide>
double OnEndlessGrid(const TableGrid& grid, double magnitude, Decide&& decide) {
  if (magnitude < grid.smallest) {
    constexpr int kShift = 60;
    const auto rest = static_cast<std::uint64_t>(std::ldexp(magnitude / grid.smallest, kShift));
    return decide(rest == 0 ? 1 : rest, kShift, /*even=*/true) ? grid.smallest : 0;
  }
  const auto bits = __builtin_bit_cast(std::uint64_t, magnitude);
  const auto& binade = BinadeAt(grid, static_cast<int>(bits >> kDoubleBits) - 1023);
  const int shift = kDoubleBits - binade.bits;
  const std::uint64_t rest = bits & ((std::uint64_t{1} << shift) - 1);
  if (rest == 0) return magnitude;
  std::uint64_t below = bits - rest;
  const bool odd = binade.odd != (binade.bits > 0 && (below >> shift) % 2 == 1);
  if (decide(rest, shift, !odd)) below += std::uint64_t{1} << shift;
  return __builtin_bit_cast(double, below);
}

}  // namespace

bool operator==(const TableGrid& a, const TableGrid& b) {
  const auto facts = [](const TableGrid& g) {
    return std::make_tuple(g.name, g.smallest, g.smallest_normal, g.largest, g.next, g.is_signed,
                           g.has_inf, g.has_nan, g.has_negative_zero, g.ties_away, g.beyond_is_nan);
  };
  return facts(a) == facts(b) && a.modes == b.modes;
}

bool IsStochastic(TableRounding rounding) { return rounding >= TableRounding::kStochasticA; }

// P3109, 4.7: what lies beyond the largest value after rounding becomes that value, inf or NaN.
// Rounding toward zero does not leave the finite values.
TableRounded RoundByTable(const TableGrid& grid, double x, bool saturate, bool draws,
                          std::uint32_t random) {
  if (std::isnan(x)) return {grid.has_nan ? static_cast<float>(x) : 0.0f, false};
  const bool negative = std::signbit(x), infinite = std::isinf(x);
  const double magnitude = std::fabs(x);
  const auto as = [&](double value) { return static_cast<float>(negative ? -value : value); };
  TableRounding rounding = grid.modes.rounding;
  const bool by_all_bits = draws && rounding == TableRounding::kDefault;
  if (rounding == TableRounding::kDefault || (IsStochastic(rounding) && !draws))
    rounding = grid.ties_away ? TableRounding::kNearestAway : TableRounding::kNearestEven;
  const TableOverflow overflow = saturate ? TableOverflow::kSaturate : grid.modes.overflow;
  const bool saturates = overflow != TableOverflow::kNone;
  // Down in magnitude, for a positive or a negative value.
  const bool shortens =
      rounding == TableRounding::kTowardZero ||
      rounding == (negative ? TableRounding::kTowardPositive : TableRounding::kTowardNegative);
  double rounded = grid.next;
  if (magnitude < grid.next) {
    // Where all bits decide, what lies beyond the largest value is rounded to nearest.
    const bool chance = by_all_bits && magnitude < grid.largest;
    rounded = magnitude == 0
                  ? 0
                  : OnEndlessGrid(grid, magnitude, [&](std::uint64_t rest, int shift, bool even) {
                      const Position at{rest, shift, even, negative};
                      if (chance) return random < LeadingBits(at, 32);
                      return RoundsUp(rounding, at, grid.modes.random_bits, random);
                    });
  }
  const bool beyond = rounded > grid.largest;
  constexpr float kNan = __builtin_nanf("");
  if (negative && !grid.is_signed && rounded > 0) {
    if (saturates || (shortens && !infinite)) return {0.0f, false};
    return {kNan, !infinite};
  }
  if (!beyond) {
    if (rounded == 0) return {grid.has_negative_zero ? as(0) : 0.0f, false};
    return {as(rounded), false};
  }
  const bool odd_without_sign = rounding == TableRounding::kTowardOdd && !grid.is_signed;
  const bool keeps_inf = overflow == TableOverflow::kSaturateFinite && infinite && grid.has_inf;
  const bool finite = saturates ? !keeps_inf
                                : (!grid.has_inf && !grid.beyond_is_nan) ||
                                      ((shortens || odd_without_sign) && !infinite);
  const bool left = !infinite;
  if (finite) return {as(grid.largest), left};
  return {grid.has_inf ? as(HUGE_VAL) : kNan, left};
}

float OverflowThreshold(const TableGrid& grid) {
  // Both signs: a mode that goes away from zero leaves right above the largest value.
  const TableRounding rounding = grid.modes.rounding;
  if (rounding == TableRounding::kTowardPositive || rounding == TableRounding::kTowardNegative)
    return std::nextafter(static_cast<float>(grid.largest), HUGE_VALF);
  const auto next = static_cast<float>(grid.next);
  if (rounding == TableRounding::kTowardZero) return next;
  const double middle = grid.largest + (grid.next - grid.largest) / 2;
  const TableRounded at = RoundByTable(grid, middle, /*saturate=*/false);
  if (rounding == TableRounding::kTowardOdd)
    return at.left ? std::nextafter(static_cast<float>(grid.largest), HUGE_VALF) : next;
  const auto from = static_cast<float>(middle);
  return at.left ? from : std::nextafter(from, HUGE_VALF);
}

// Readers need no lock: a number is given out after its grid is in its place, and never again.
namespace {
constexpr std::size_t kMostGrids = 4096;
std::array<std::atomic<const TableGrid*>, kMostGrids> grids_by_number;
}  // namespace

std::uint16_t NumberOf(const TableGrid& grid) {
  static std::mutex mutex;
  static std::array<std::unique_ptr<TableGrid>, kMostGrids> owned;
  const std::scoped_lock lock(mutex);
  for (std::size_t i = 1; i < kMostGrids; ++i) {
    if (!owned[i]) {
      owned[i] = std::make_unique<TableGrid>(grid);
      grids_by_number[i] = owned[i].get();
    }
    if (*owned[i] == grid) return static_cast<std::uint16_t>(i);
  }
  throw ConfigError("more than " + std::to_string(kMostGrids - 1) + " formats with modes");
}

const TableGrid& TableGridAt(std::uint16_t number) { return *grids_by_number[number]; }

TableGrid TableGridOf(const NumberFormat& format, const TableModes& modes) {
  if (format.table != 0) {
    TableGrid grid = TableGridAt(format.table);
    grid.modes = modes;
    return grid;
  }
  TableGrid grid;
  grid.name = FormatName(format);
  grid.modes = modes;
  grid.has_inf = format.has_inf, grid.has_nan = format.has_nan;
  grid.has_negative_zero = format.has_negative_zero, grid.beyond_is_nan = format.has_nan;
  grid.smallest = format.smallest_subnormal(), grid.smallest_normal = format.smallest_normal();
  grid.largest = format.largest();
  const int lowest = std::ilogb(grid.smallest_normal);
  for (int e = TableGrid::kLowest; e <= TableGrid::kHighest; ++e) {
    TableGrid::Binade& binade = grid.binades[static_cast<std::size_t>(e - TableGrid::kLowest)];
    const int bits = e >= lowest ? format.mantissa_bits : e - lowest + format.mantissa_bits;
    binade.bits = static_cast<std::int8_t>(bits > 0 ? bits : 0);
    // Each power of two is a place further where there is no mantissa; else only the first is odd.
    binade.odd = format.mantissa_bits == 0 ? (e - lowest) % 2 == 0 : bits == 0;
  }
  const int top = std::ilogb(grid.largest);
  grid.next = grid.largest + std::ldexp(1.0, top - BinadeAt(grid, top).bits);
  return grid;
}

NumberFormat WithModes(const NumberFormat& format, const TableModes& modes) {
  if (format == kFp32) return format;
  const bool plain = (modes.rounding == TableRounding::kDefault ||
                      modes.rounding == TableRounding::kNearestEven) &&
                     modes.overflow == TableOverflow::kNone;
  if (format.table == 0 && plain) return format;
  NumberFormat rounded = format;
  NumberFormat bare = format;
  bare.saturate = false;
  rounded.table = NumberOf(TableGridOf(bare, modes));
  return rounded;
}

}  // namespace ada
