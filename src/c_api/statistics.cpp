// What layers' rules look at, of fp32 values in the processor's memory. Sums are formed in lanes of
// their own, so that the compiler can keep several in one register; their order does not depend on
// the machine.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "c_api/ada_scaling.h"
#include "number/number_grid.h"

namespace ada::c_api {
namespace {

// Sixteen floats are two registers of AVX2, sixteen doubles four.
constexpr int kLanes = 16;
constexpr std::int64_t kBlock = 4096;  // read twice, the second time from the cache

// The sums of a block's values and of their squares.
struct BlockSums {
  double sum = 0, square = 0;
};

// The start values lie outside of all numbers, so the first value replaces them; without values
// they stay.
struct Extremes {
  float low = INFINITY, high = -INFINITY;
  std::uint32_t smallest = 0xffffffffu;  // bits of the magnitude, minus 1: zeros are the largest
  std::uint32_t largest = 0;
};

// Compiled twice on x86-64: the machine chooses. Lanes have the same sums either way.
#if defined(__x86_64__)
#define ADA_WIDE __attribute__((target_clones("avx2", "default")))
#else
#define ADA_WIDE
#endif

// Adds a block to `all`. Comparisons with NaN are false, so a NaN moves no lane's extremes but
// `largest`, whose bits order NaN above infinity.
ADA_WIDE void AddExtremes(const float* x, std::int64_t n, Extremes& all) {
  float low[kLanes], high[kLanes];
  std::uint32_t smallest[kLanes], largest[kLanes];
  std::fill(low, low + kLanes, INFINITY);
  std::fill(high, high + kLanes, -INFINITY);
  std::fill(smallest, smallest + kLanes, 0xffffffffu);
  std::fill(largest, largest + kLanes, 0u);
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int k = 0; k < kLanes; ++k) {
      const float value = x[i + k];
      const std::uint32_t bits = MagnitudeBits(value);
      low[k] = value < low[k] ? value : low[k];
      high[k] = value > high[k] ? value : high[k];
      smallest[k] = bits - 1 < smallest[k] ? bits - 1 : smallest[k];
      largest[k] = bits > largest[k] ? bits : largest[k];
    }
  }
  for (; i < n; ++i) {
    const std::uint32_t bits = MagnitudeBits(x[i]);
    low[0] = std::min(low[0], x[i]);
    high[0] = std::max(high[0], x[i]);
    smallest[0] = std::min(smallest[0], bits - 1);
    largest[0] = std::max(largest[0], bits);
  }
  for (int k = 0; k < kLanes; ++k) {
    all.low = std::min(all.low, low[k]);
    all.high = std::max(all.high, high[k]);
    all.smallest = std::min(all.smallest, smallest[k]);
    all.largest = std::max(all.largest, largest[k]);
  }
}

// Sums of a block in double. Each lane adds every sixteenth value, and the lanes are added in their
// order.
ADA_WIDE BlockSums SumsOf(const float* x, std::int64_t n) {
  double sum[kLanes] = {}, square[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int k = 0; k < kLanes; ++k) {
      const double value = x[i + k];
      sum[k] += value;
      square[k] += value * value;
    }
  }
  for (; i < n; ++i) {
    sum[0] += static_cast<double>(x[i]);
    square[0] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  BlockSums sums;
  for (int k = 0; k < kLanes; ++k) {
    sums.sum += sum[k];
    sums.square += square[k];
  }
  return sums;
}

}  // namespace
}  // namespace ada::c_api

// Blocks are added in their order, so the result depends on the values only.
void ada_moments_of(const float* values, int64_t count, ada_moments* moments) {
  ada::c_api::Extremes extremes;
  double sum = 0, square = 0;
  for (std::int64_t first = 0; first < count; first += ada::c_api::kBlock) {
    const std::int64_t n = std::min(ada::c_api::kBlock, count - first);
    ada::c_api::AddExtremes(values + first, n, extremes);
    const ada::c_api::BlockSums block = ada::c_api::SumsOf(values + first, n);
    sum += block.sum;
    square += block.square;
  }
  // A tensor without values has mean 0.
  const double n = static_cast<double>(std::max<std::int64_t>(count, 1));
  *moments = {sum / n, square / n, extremes.low, extremes.high, 0};
  if (extremes.smallest < ada::kInfinityBits) moments->min_abs = ada::OfBits(extremes.smallest + 1);
  if (extremes.largest > ada::kInfinityBits) moments->mean_square = NAN;
  if (extremes.largest == ada::kInfinityBits) moments->mean_square = INFINITY;
  if (count == 0) moments->min = moments->max = 0;
}

// alpha is a power of two, so its inverse is exact and gives the value before alpha back, unless
// that multiplication rounded into the subnormal range.
void ada_tail_of(const float* values, int64_t count, float alpha, ada_tail* tail) {
  std::memset(tail, 0, sizeof *tail);
  const float back = 1 / alpha;
  std::uint32_t largest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t bits = ada::MagnitudeBits(values[i] * back);
    if (bits == 0) continue;
    ++tail->nonzero;
    largest = std::max(largest, bits);
    ++tail->bins[bits >> 23];
  }
  tail->largest = static_cast<double>(ada::OfBits(largest));
}
