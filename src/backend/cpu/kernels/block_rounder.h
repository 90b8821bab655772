// Values of sixteen blocks under their scales, as the vectorized kernels take them. The scales are
// computed at once, to the bits of number/blocks/block_rules_inline.h: every operation is one in
// fp32 there and here, in the same order.
#pragma once
#include "backend/cpu/block_kernels.h"
#include "backend/cpu/kernels/flat.h"
#include "backend/cpu/kernels/grid.h"
#include "number/blocks/block_rules_inline.h"

namespace ada::backend::cpu::ADA_ISA {

// What the scales of the tensor come to, lane by lane.
// As TensorFactor of number/blocks: amax of the tensor, and its scale both ways.
struct TensorFactors {
  F amax, encode, decode;
};
// Values are multiplied by `encode` before they are rounded and by `decode` after it.
struct BlockFactors {
  F encode, decode;
};
// `stored`: the scale in its storage format.
struct Fp8BlockFactors : BlockFactors {
  F stored;
};

// A format's grids, of scalars and of vectors.
// Made once for a call and read by every block.
struct BlockRules {
  BlockGrid grid;
  Grid element, scale;
};
ADA_OUTLINE BlockRules RulesOf(const BlockFormat& format, bool bf16_input) {
  BlockRules rules;
  rules.grid = BlockGridOf(format, bf16_input);
  NumberFormat element = format.element;
  element.saturate = true;
  rules.element = Grid(element);
  rules.scale = Grid(ScaleFormatOf(format.scale));
  return rules;
}

// A NaN stays.
ADA_INLINE F AtMost(F x, float largest) { return Select(x > Fill(largest), Fill(largest), x); }
ADA_INLINE F AtLeast(F x, float least) { return Select(x < Fill(least), Fill(least), x); }

// Scales that are powers of two: `code` is the biased exponent of the scale as it is stored. The
// rules differ in how amax / top is rounded to a power of two.
ADA_INLINE BlockFactors E8M0Factors(const BlockGrid& grid, U amax) {
  const U infinity = FillU(kInfinityBits);
  U bits = amax;
  I code;
  if (grid.rule == BlockRule::kRceil) {
    bits = Bits(Float(amax) * grid.top_reciprocal);
    const U field = bits >> 23, mantissa = bits & 0x7fffffu;
    const I up = Select((I)(field == 0u), (I)mantissa > (I)FillU(0x400000u), (I)(mantissa != 0u));
    code = (I)field - up;
  } else {
    if (grid.rule == BlockRule::kEven) {
      const U rounded = (bits + (1u << (22 - grid.element.mantissa_bits))) & kInfinityBits;
      bits = Select((I)bits > (I)infinity, bits, rounded);
    }
    code = (I)(bits >> 23) - grid.top_exponent;
    if (grid.rule == BlockRule::kCeil) code = code - (I)((bits & 0x7fffffu) != 0u);
    code = Select(code < I{}, I{}, code);
  }
  // 2^-127 is below fp32's normal numbers.
  const U decode = Select(code == I{}, FillU(0x400000u), (U)code << 23);
  // The reciprocal of a power of two is exact.
  const I inverse = 254 - code;
  const U encode = Select(inverse == I{}, FillU(0x400000u), (U)inverse << 23);
  const I is_nan = (I)bits >= (I)infinity;
  return {Float(Select(is_nan, FillU(kQuietNanBits), encode)),
          Float(Select(is_nan, FillU(kQuietNanBits), decode))};
}

// Scales in fp8 under a scale of the tensor, in the three ways of the programs that have them:
// modelopt, Transformer Engine, torchao. Which operations come in which order decides about the
// last bit.
ADA_INLINE Fp8BlockFactors Fp8Factors(const BlockRules& rules, const TensorFactors& tensor,
                                      F amax) {
  const BlockGrid& grid = rules.grid;
  if (grid.rule == BlockRule::kModelopt) {
    F wanted = amax / (grid.top * tensor.decode);
    wanted = Select(wanted == F{}, Fill(1), wanted);
    const F stored = RoundToGrid(AtLeast(wanted, PowerOfTwo(-9)), rules.scale);
    const F decode = stored * tensor.decode;
    return {{1.0f / decode, decode}, stored};
  }
  if (grid.tensor_scale && grid.rule != BlockRule::kTorchao) {
    const F stored = RoundToGrid(amax * (tensor.encode * grid.top_reciprocal), rules.scale);
    return {{AtMost(1.0f / (stored * tensor.decode), OfBits(kLargestFp32Bits)),
             stored * tensor.amax * grid.tensor_reciprocal},
            stored};
  }
  const F wanted = AtLeast(amax / grid.top / tensor.decode, PowerOfTwo(-6));
  const F stored = RoundToGrid(wanted, rules.scale);
  return {{tensor.encode / stored, stored * tensor.decode}, stored};
}

// Scales in fp32. A block of zeros has the scale 1; an infinite quotient is replaced by the largest
// number. NaN: as in Fp32FactorOf.
ADA_INLINE BlockFactors Fp32Factors(const BlockGrid& grid, F amax) {
  const U infinity = FillU(kInfinityBits);
  F encode = grid.top / amax;
  encode = Select((I)(Bits(encode) == infinity), Fill(grid.largest_input), encode);
  if (grid.power_of_two) {
    const U bits = Bits(amax);
    encode = Float(Bits(encode) & kInfinityBits);
    encode = Select((I)bits == (I)infinity, F{}, encode);
    encode = Select((I)bits > (I)infinity, Fill(grid.has_nan ? 0.5f : NAN), encode);
  }
  const I zero = amax == F{};
  return {Select(zero, Fill(1), encode), Select(zero, Fill(1), 1.0f / encode)};
}

// Not inlined: E8M0, the common case, stays small in every loop.
ADA_OUTLINE BlockFactors OtherFactors(const BlockRules& rules, const TensorFactors& tensor,
                                      float tensor_part, F amax) {
  if (rules.grid.kind == BlockScale::kFp32) return Fp32Factors(rules.grid, amax);
  if (rules.grid.kind == BlockScale::kUE5M3) {
    const F stored = RoundToGrid(amax / rules.grid.top, rules.scale);
    return {1.0f / stored, stored};
  }
  Fp8BlockFactors factors = Fp8Factors(rules, tensor, amax);
  if (tensor_part != 0) factors.decode = factors.stored * tensor_part;
  return factors;
}

// For the largest magnitudes of sixteen blocks, as bits. tensors(): the factors of their tensors,
// which a power of two has no use for. tensor_part: as in BlockArgs.
template <class Tensors>
ADA_INLINE BlockFactors FactorsOf(const BlockRules& rules, U amax, float tensor_part,
                                  const Tensors& tensors) {
  if (rules.grid.kind == BlockScale::kE8M0) return E8M0Factors(rules.grid, amax);
  return OtherFactors(rules, tensors(), tensor_part, Float(amax));
}

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
