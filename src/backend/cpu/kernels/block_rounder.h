// Values of sixteen blocks under their scales, as the vectorized kernels take them.
#pragma once
#include "backend/cpu/block_kernels.h"
#include "backend/cpu/kernels/block_factors.h"
#include "backend/cpu/kernels/flat.h"

namespace ada::backend::cpu::ADA_ISA {

// The factors of `count` blocks, block k of line line_of(k); lanes after the last have zeros, and
// what they compute is not stored.
template <class LineOf>
ADA_INLINE TensorFactors TensorsOf(const BlockArgs& args, int count, const LineOf& line_of) {
  if (!args.tensor_each) {
    const TensorFactor& of = args.tensors[0];
    return {Fill(of.amax), Fill(of.encode), Fill(of.decode)};
  }
  float amax[kLanes] = {}, encode[kLanes] = {}, decode[kLanes] = {};
  for (int k = 0; k < count; ++k) {
    const TensorFactor& of = args.tensors[line_of(k)];
    amax[k] = of.amax, encode[k] = of.encode, decode[k] = of.decode;
  }
  return {LoadF(amax), LoadF(encode), LoadF(decode)};
}

// How values of blocks are rounded, copied where registers can hold it.
// kDivides: values are divided by `decode` where the rule does so, which rounds otherwise than a
// product with its reciprocal.
template <bool kStochastic, bool kDivides>
struct Rounder16 {
  Grid grid;
  bool plain_zeros, nan_is_zero;
  std::uint64_t key, draw, first;

  Rounder16(const BlockRules& rules, const BlockArgs& args)
      : grid(rules.element),
        plain_zeros(rules.grid.plain_zeros),
        nan_is_zero(rules.grid.nan_is_zero),
        key(args.key),
        draw(args.draw),
        first(args.first) {}
  // The words of values from at + step g on, for kGroup values of g.
  static constexpr int kGroup = kStochastic ? kWordGroups : 1;
  ADA_INLINE void WordsOf(std::int64_t at, std::int64_t step, U* words) const {
    if constexpr (kStochastic)
      RandomWordsOfGroups(key, draw, first + static_cast<std::uint64_t>(at), step, words);
  }
  // Sixteen values; `words`: theirs.
  ADA_INLINE F operator()(F x, F encode, F decode, U words) const {
    const F scaled = kDivides ? x / decode : x * encode;
    F r;
    if constexpr (kStochastic)
      r = RoundStochasticallyToGrid(scaled, words, grid);
    else
      r = RoundToGrid(scaled, grid);
    // A zero loses its sign and a NaN becomes zero; values that round to zero keep their sign.
    if (plain_zeros) r = Select((scaled < F{}) | (scaled > F{}), r, F{});
    if (nan_is_zero) r = Select(scaled == scaled, r, F{});
    const F product = r * decode;
    // -0 + 0 is 0.
    return kDivides ? product + F{} : product;
  }
};

}  // namespace ada::backend::cpu::ADA_ISA
