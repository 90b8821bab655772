// Blocks whose lines lie side by side, so that sixteen neighbors in memory are of sixteen lines.
#pragma once
#include "backend/cpu/kernels/block_rounder.h"

namespace ada::backend::cpu::ADA_ISA {

// Gives those of lines (first, row) to (first + lanes - 1, row).
ADA_OUTLINE TensorFactors TensorsOfLanes(const BlockArgs& args, std::int64_t first,
                                         std::int64_t row, int lanes) {
  return TensorsOf(args, lanes, [&](int k) { return (first + k) * args.layout.rows + row; });
}

// Blocks whose lines lie side by side: matrix m + 1 is one value on.
template <class From, class To, bool kStochastic, bool kDivides>
void QuantizeLanes(const BlockArgs& args, const BlockRules& rules) {
  const BlockLayout& layout = args.layout;
  const Rounder16<kStochastic, kDivides> round(rules, args);
  const TensorSpan from = args.from, to = args.to;
  const std::int64_t block = args.format.block, tall = args.format.square ? block : 1;
  // A tile is `tall` lines high where blocks are square, else one; the last ones of a side are cut.
  const auto tile = [&](std::int64_t row, std::int64_t begin) __attribute__((always_inline)) {
    const std::int64_t rows = row + tall < layout.rows ? tall : layout.rows - row;
    const std::int64_t columns = begin + block < layout.length ? block : layout.length - begin;
    const std::int64_t first = row * layout.row_stride + begin * layout.stride;
    ForValues(
        layout.matrices, [&](std::int64_t m, int lanes, auto tail) __attribute__((always_inline)) {
          constexpr bool kTail = decltype(tail)::value;
          U largest{};
          // First pass: the largest magnitude of each of the sixteen blocks.
          for (std::int64_t r = 0; r < rows; ++r) {
            const std::int64_t line = first + r * layout.row_stride + m;
            for (std::int64_t i = 0; i < columns; ++i)
              largest = MaxBits(
                  largest, Magnitude(LoadAt<From, kTail>(from, line + i * layout.stride, lanes)));
          }
          const BlockFactors factors = FactorsOf(rules, largest, args.tensor_part, [&] {
            return TensorsOfLanes(args, m, row, lanes);
          });
          // Second pass: every value once more, rounded under its block's scale. The block is still
          // in the cache.
          const F encode = factors.encode, decode = factors.decode;
          for (std::int64_t r = 0; r < rows; ++r) {
            const std::int64_t begin_at = first + r * layout.row_stride + m;
            for (std::int64_t i = 0; i < columns; i += round.kGroup) {
              const std::int64_t group = begin_at + i * layout.stride;
              U words[round.kGroup] = {};
              round.WordsOf(group, layout.stride, words);
              for (std::int64_t g = 0; g < round.kGroup && i + g < columns; ++g) {
                const std::int64_t at = group + g * layout.stride;
                StoreAt<To, kTail>(
                    to, at, lanes,
                    round(LoadAt<From, kTail>(from, at, lanes), encode, decode, words[g]));
              }
            }
          }
        });
  };
  for (std::int64_t row = 0; row < layout.rows; row += tall)
    for (std::int64_t begin = 0; begin < layout.length; begin += block) tile(row, begin);
}

}  // namespace ada::backend::cpu::ADA_ISA
