// Rounding 16 values to any format, nearest or stochastically, to the bits of number/number_grid.h.
#pragma once
#include "backend/cpu/kernels/random_lanes.h"
#include "number/number_grid.h"
#include "number/table_grid.h"

namespace ada::backend::cpu::ADA_ISA {

// 2^exponent, -126..127.
ADA_INLINE float PowerOfTwo(int exponent) {
  return OfBits(static_cast<std::uint32_t>(exponent + 127) << 23);
}

// A format's grid and further constants for vectors. The spacing of the subnormals of
// small formats may be below fp32's normal numbers, so that dividing by it needs two
// factors.
struct Grid : NumberGrid {
  float down[2] = {1, 1}, up[2] = {1, 1};  // products: 1 / spacing of the subnormals, and spacing
  bool by_integers = false;                // vectors' arithmetic leaves fp32: value by value

  Grid() = default;
  ADA_OUTLINE explicit Grid(const NumberFormat& f) : NumberGrid(GridOf(f)) {
    by_integers = NeedsIntegers(f);
    if (by_integers) return;
    const int spacing = lowest_exponent - mantissa_bits;  // exponent of the smallest subnormal
    const int first = spacing < -126 ? -126 : spacing;
    up[0] = PowerOfTwo(spacing - first), up[1] = PowerOfTwo(first);
    down[0] = PowerOfTwo(-first), down[1] = PowerOfTwo(first - spacing);
  }
};

// r: rounded magnitudes, right for u < overflow_min.
// Overflow, NaN and signs as the format has them: `over` is inf, the largest value or NaN.
ADA_INLINE F FinishRounding(U u, U sign, U r, const Grid& grid) {
  r = Select((I)u >= (I)FillU(grid.overflow_min), FillU(grid.over), r);
  const U nan = (U)((I)u > (I)FillU(0x7f800000u));
  r = Select((I)nan, u & grid.nan_keep, r);
  sign ^= nan & grid.nan_flip;
  sign &= (U)(r != 0u) | grid.zero_sign;
  return Float(r | sign);
}

// Nearest, ties to even; not for grids with `by_integers`.
// Normal values: half a spacing is added to the bits, the rest cut off, which carries into the
// exponent where that is due. Subnormals: adding `magic`, whose spacing is theirs, lets the adder
// round.
ADA_INLINE_WIDE F RoundToGrid(F x, const Grid& grid) {
  const U u = Magnitude(x), sign = Bits(x) & 0x80000000u;
  const U normal = (u + grid.half_minus + ((u >> grid.shift) & grid.tie)) & grid.keep;
  const U subnormal = Bits((Float(u) + grid.magic) - grid.magic);
  const U r = Select((I)u < (I)FillU(grid.direct_min), subnormal, normal);
  return FinishRounding(u, sign, r, grid);
}

// As ada::RoundStochastically with the words of `random`; not for grids with `by_integers`.
ADA_INLINE_WIDE F RoundStochasticallyToGrid(F x, U random, const Grid& grid) {
  const U u = Magnitude(x), sign = Bits(x) & 0x80000000u;
  // The part below the spacing, in units of 2^-32 of it.
  // Rounds up with the probability of the part that is cut off: where the random word is below it.
  const U part = grid.shift == 0 ? U{} : u << (32 - grid.shift);
  const U normal = (u & grid.keep) + ((U)Less(random, part) & (1u << grid.shift));
  // Subnormals: the part in 32 bits, in two steps of 16, since a float has only 24.
  const F spacings = Min(Float(u) * grid.down[0] * grid.down[1], Fill(0x1p23f));
  const I below = ToInts(spacings);
  const F rest = (spacings - ToFloats(below)) * 0x1p16f;
  const I high = ToInts(rest);
  const I low = ToInts((rest - ToFloats(high)) * 0x1p16f);
  const I up = Less(random, (U)high << 16 | (U)low);
  const U subnormal = Bits(ToFloats(below - up) * grid.up[0] * grid.up[1]);
  U r = Select((I)u < (I)FillU(grid.direct_min), subnormal, normal);
  r = Select((I)u >= (I)FillU(grid.largest), FillU(grid.largest), r);
  return FinishRounding(u, sign, r, grid);
}

// A Rounding with its format's constants, made once a block.
struct Rounder {
  Rounding rounding;
  Grid grid;
};
// 16 values on their way: as they are counted before and after rounding, and as they are stored.
struct Rounded {
  F before, after, stored;
};

// Value by value, where fp32 arithmetic cannot round to the format.
ADA_OUTLINE F RoundByIntegers(F x, const NumberGrid& grid) {
  float lanes[kLanes];
  StoreF(lanes, x);
  for (float& lane : lanes) lane = ada::RoundToGrid(grid, lane);
  return LoadF(lanes);
}
ADA_OUTLINE F RoundRandomlyByIntegers(F x, U random, const NumberGrid& grid) {
  float lanes[kLanes];
  StoreF(lanes, x);
  for (int k = 0; k < kLanes; ++k) lanes[k] = RoundRandomlyToGrid(grid, lanes[k], random[k]);
  return LoadF(lanes);
}

ADA_INLINE_WIDE F RoundNearest(F x, const Rounder& rounder) {
  if (rounder.grid.by_integers) return RoundByIntegers(x, rounder.grid);
  return RoundToGrid(x, rounder.grid);
}
// Values i .. i + 15 of the block.
ADA_OUTLINE F RoundRandomly(F x, std::int64_t i, const Rounder& rounder) {
  const Rounding& how = rounder.rounding;
  const U random = RandomWords(how.key, how.draw, how.first + static_cast<std::uint64_t>(i));
  if (rounder.grid.by_integers) return RoundRandomlyByIntegers(x, random, rounder.grid);
  return RoundStochasticallyToGrid(x, random, rounder.grid);
}

// By a table. What leaves the format is counted by its value after rounding, which therefore is inf
// here, whatever it becomes. given: without the scale of the tensor, which may bring it beyond
// fp32.
ADA_OUTLINE Rounded RoundByTables(F x, F given, std::int64_t i, const Rounder& rounder) {
  const Rounding& how = rounder.rounding;
  const TableGrid& grid = TableGridAt(rounder.grid.table);
  U random{};
  if (how.stochastic)
    random = RandomWords(how.key, how.draw, how.first + static_cast<std::uint64_t>(i));
  float before[kLanes], unscaled[kLanes], after[kLanes], stored[kLanes];
  StoreF(before, x);
  StoreF(unscaled, given);
  for (int k = 0; k < kLanes; ++k) {
    auto value = static_cast<double>(before[k]);
    if (__builtin_isinf(before[k]))
      value = static_cast<double>(unscaled[k]) * static_cast<double>(how.scale);
    const TableRounded r =
        RoundByTable(grid, value, rounder.grid.saturates, how.stochastic, random[k]);
    stored[k] = r.value;
    after[k] = r.left ? __builtin_inff() : r.value;
  }
  const F r = LoadF(stored);
  return {x, LoadF(after), how.scale != 1 ? r / Fill(how.scale) : r};
}

// Values i .. i + 15 of the block, rounded as asked, whatever is asked.
// The general way: with or without a scale of the tensor, to nearest or stochastically.
ADA_INLINE_WIDE Rounded RoundAnyWay(F x, std::int64_t i, const Rounder& rounder) {
  const Rounding& how = rounder.rounding;
  const bool scaled = how.scale != 1;
  const F given = x;
  if (scaled) x *= Fill(how.scale);
  if (rounder.grid.table != 0) return RoundByTables(x, given, i, rounder);
  const F r = how.stochastic ? RoundRandomly(x, i, rounder) : RoundNearest(x, rounder);
  return {x, r, scaled ? r / Fill(how.scale) : r};
}
// The rounded values that were stored as x: the division by the scale undone, to the very value.
ADA_OUTLINE F RoundStored(F x, const Rounder& rounder) {
  const float scale = rounder.rounding.scale;
  return scale == 1 ? x : RoundNearest(x * Fill(scale), rounder);
}

}  // namespace ada::backend::cpu::ADA_ISA
