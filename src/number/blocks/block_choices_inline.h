// The choices inside the rules of block-scaled formats: between four_over_six's two scales by all
// values of a block, of HiFloat4's exponents by eight and four values, and between two neighboring
// elements by random bits. Also for CUDA.
#pragma once
#include <cmath>
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

// HiFloat4: whether the eight values and the four values that value i of a block is one of are
// doubled.
struct DoubledValues {
  bool eight = false, four = false;
  ADA_HOST_DEVICE int count() const { return (eight ? 1 : 0) + (four ? 1 : 0); }
};
template <class Value>
ADA_HOST_DEVICE static inline DoubledValues DoubledAt(const BlockFactor& factor, std::int64_t n,
                                                      std::int64_t i, const Value& value) {
  const auto scaled = [&](std::int64_t size) {  // the largest of a group
    const std::int64_t first = i / size * size, end = first + size < n ? first + size : n;
    float largest = 0;
    for (std::int64_t k = first; k < end; ++k) {
      const float magnitude = OfBits(MagnitudeBits(value(k)));
      if (magnitude > largest) largest = magnitude;
    }
    return static_cast<double>(largest) * static_cast<double>(factor.encode);
  };
  DoubledValues doubled;
  doubled.eight = scaled(8) >= 4;
  doubled.four = scaled(4) >= (doubled.eight ? 4 : 2);
  return doubled;
}
// The factor of value i of a block's n: the block's, but for HiFloat4.
template <class Value>
ADA_HOST_DEVICE static inline BlockFactor FactorAt(const BlockGrid& grid, const BlockFactor& factor,
                                                   std::int64_t n, std::int64_t i,
                                                   const Value& value) {
  if (grid.rule != BlockRule::kHiFloat4) return factor;
  const int doubled = DoubledAt(factor, n, i, value).count();
  BlockFactor own = factor;
  own.encode *= PowerOfTwo(-doubled), own.decode *= PowerOfTwo(doubled);
  return own;
}
// The element of x to nearest, under the factor of its place. HiFloat4's are quarters, ties away
// from zero, which its reference finds in double.
ADA_HOST_DEVICE static inline float NearestElement(const BlockGrid& grid, const BlockFactor& factor,
                                                   float x) {
  if (grid.rule != BlockRule::kHiFloat4) return RoundElement(grid, Scaled(grid, factor, x));
  if (!(factor.encode > 0)) return 0;
  const double quarters =
      std::fabs(static_cast<double>(x)) * static_cast<double>(factor.encode) * 4;
  const double code = std::floor(quarters + 0.5);
  const float element = static_cast<float>(code < 7 ? code : 7) / 4;
  return x < 0 ? -element : element;
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
