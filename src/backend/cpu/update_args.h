// What the update kernel takes: a stretch of one parameter, or of a copy of it.
#pragma once
#include <cstdint>

#include "backend/update_rules.h"
#include "number/number_grid.h"

namespace ada::backend::cpu {

// RoundToGrid for formats with fp32's exponents, inf and NaN (bf16): integers without a branch, of
// which a compiler makes vectors. A default-constructed one rounds nothing. `static`: kernels
// compiled for several instruction sets must each have their own copy.
struct DirectRounding {
  std::uint32_t half_minus = 0, tie = 0, keep = ~0u;
  int shift = 0;
};
ADA_HOST_DEVICE static inline float RoundDirectly(const DirectRounding& r, float x) {
  // What is added to a magnitude carries as far as the exponent, never into the sign.
  const std::uint32_t bits = BitsOf(x);
  const std::uint32_t rounded = (bits + r.half_minus + ((bits >> r.shift) & r.tie)) & r.keep;
  return x != x ? x : OfBits(rounded);
}
ADA_HOST_DEVICE static inline bool RoundsDirectly(const NumberGrid& grid) {
  const bool as_fp32 = grid.over == kInfinityBits && grid.nan_keep == ~0u && grid.zero_sign != 0;
  return grid.exact || (grid.table == 0 && grid.is_signed && grid.direct_min == 0 && as_fp32);
}
ADA_HOST_DEVICE static inline DirectRounding DirectOf(const NumberGrid& grid) {
  if (grid.exact) return {};
  return {grid.half_minus, grid.tie, grid.keep, grid.shift};
}

// How values that an update writes in place are kept: the weight and the states.
struct KeptInPlace {
  DirectRounding value, states[3];
};

// All arrays hold n fp32 values; `value` and the states are replaced. A state that the kind does
// not have is null, those that it has come first (optim/states.h). How a tensor is cut into
// stretches changes no value.
struct UpdateArgs {
  UpdateRule::Kind kind = UpdateRule::Kind::kSgd;  // one that looks at each value alone
  UpdateScalars scalars = {};
  // Each operation is rounded to this grid; null: fp32. Without `step` it RoundsDirectly, and gives
  // what is kept.
  const NumberGrid* arithmetic = nullptr;
  // Without `step`: how results of fp32 arithmetic are kept; null: in fp32.
  const KeptInPlace* kept = nullptr;
  std::int64_t n = 0;
  float* value = nullptr;
  const float* gradient = nullptr;
  float* states[3] = {};
  // Where it is given, the new weight is not formed: `value` becomes the decayed weight, and `step`
  // what is to be added to it.
  float* step = nullptr;
};

}  // namespace ada::backend::cpu
