// The choices inside the rules of block-scaled formats: between four_over_six's two scales by all
// values of a block, and between two neighboring elements by random bits. Also for CUDA.
#pragma once
#include <cstdint>

#include "number/blocks/block_rules_inline.h"

namespace ada {

// RoundElement with stochastic rounding by 32 random bits.
ADA_HOST_DEVICE static inline float RoundElementRandomly(const BlockGrid& grid, float scaled,
                                                         std::uint32_t random) {
  if (grid.plain_zeros && !(scaled < 0) && !(scaled > 0)) return 0;
  if (grid.nan_is_zero && scaled != scaled) return 0;
  return RoundRandomlyToGrid(grid.element, scaled, random);
}

// The sum over the n values value(i) of a row of a block, in their order.
template <class Value>
ADA_HOST_DEVICE static inline float FourOverSixRowError(const BlockGrid& grid,
                                                        const TensorFactor& tensor,
                                                        const BlockFactor& factor, std::int64_t n,
                                                        const Value& value) {
  float sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += FourOverSixError(grid, tensor, factor, value(i));
  return sum;
}
// The sum over a block's n rows, row(i), which are modified: added in pairs half of them apart.
template <class Row>
ADA_HOST_DEVICE static inline float JoinRowErrors(std::int64_t n, const Row& row) {
  // A tree of fixed shape gives the same sum on a device, where threads add in parallel, as here.
  std::int64_t half = 1;
  while (half < n) half *= 2;
  while ((half /= 2) > 0) {
    for (std::int64_t i = 0; i + half < n && i < half; ++i) row(i) += row(i + half);
  }
  return row(0);
}

}  // namespace ada
