// Rounding under scales of blocks; see block_kernels.h. Sixteen blocks have their scales computed
// side by side: those of sixteen lines where neighbors in memory are of different lines (Lanes),
// else those of sixteen blocks of one line (Lines). And the transform of operands.
#include "backend/cpu/block_kernels.h"
#include "backend/cpu/kernels/block_factors.h"
#include "backend/cpu/kernels/flat.h"

namespace ada::backend::cpu::ADA_ISA {
namespace {

TensorSpan SpanOf(const float* values) { return {const_cast<float*>(values), Storage::kF32}; }

TensorFactors Broadcast(const TensorFactor& tensor) {
  return {Fill(tensor.amax), Fill(tensor.encode), Fill(tensor.decode)};
}
// Gives those of lines (first, row) to (first + lanes - 1, row).
ADA_OUTLINE TensorFactors TensorsOf(const BlockArgs& args, std::int64_t first, std::int64_t row,
                                    int lanes) {
  if (!args.tensor_each) return Broadcast(args.tensors[0]);
  float amax[kLanes] = {}, encode[kLanes] = {}, decode[kLanes] = {};
  for (int k = 0; k < lanes; ++k) {
    const TensorFactor& of = args.tensors[(first + k) * args.layout.rows + row];
    amax[k] = of.amax, encode[k] = of.encode, decode[k] = of.decode;
  }
  return {LoadF(amax), LoadF(encode), LoadF(decode)};
}

// How values are rounded, copied where registers can hold it.
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
  // Sixteen values from x[at] on.
  ADA_INLINE F operator()(F x, F encode, F decode, std::int64_t at) const {
    const F scaled = kDivides ? x / decode : x * encode;
    F r;
    if constexpr (kStochastic)
      r = RoundStochasticallyToGrid(
          scaled, RandomWords(key, draw, first + static_cast<std::uint64_t>(at)), grid);
    else
      r = RoundToGrid(scaled, grid);
    if (plain_zeros) r = Select((scaled < F{}) | (scaled > F{}), r, F{});
    if (nan_is_zero) r = Select(scaled == scaled, r, F{});
    const F product = r * decode;
    return kDivides ? product + F{} : product;
  }
};

// Blocks whose lines lie side by side: matrix m + 1 is one value on.
template <class From, bool kStochastic, bool kDivides>
void QuantizeLanes(const BlockArgs& args, const BlockRules& rules) {
  const BlockLayout& layout = args.layout;
  const Rounder16<kStochastic, kDivides> round(rules, args);
  const TensorSpan from = args.from, to = SpanOf(args.to);
  const std::int64_t block = args.format.block, tall = args.format.square ? block : 1;
  const auto tile = [&](std::int64_t row, std::int64_t begin) __attribute__((always_inline)) {
    const std::int64_t rows = row + tall < layout.rows ? tall : layout.rows - row;
    const std::int64_t columns = begin + block < layout.length ? block : layout.length - begin;
    const std::int64_t first = row * layout.row_stride + begin * layout.stride;
    ForValues(
        layout.matrices, [&](std::int64_t m, int lanes, auto tail) __attribute__((always_inline)) {
          constexpr bool kTail = decltype(tail)::value;
          U largest{};
          for (std::int64_t r = 0; r < rows; ++r) {
            const std::int64_t line = first + r * layout.row_stride + m;
            for (std::int64_t i = 0; i < columns; ++i)
              largest = MaxBits(
                  largest, Magnitude(LoadAt<From, kTail>(from, line + i * layout.stride, lanes)));
          }
          const BlockFactors factors = FactorsOf(rules, TensorsOf(args, m, row, lanes), largest);
          const F encode = factors.encode, decode = factors.decode;
          for (std::int64_t r = 0; r < rows; ++r) {
            const std::int64_t begin_at = first + r * layout.row_stride + m;
            for (std::int64_t i = 0; i < columns; ++i) {
              const std::int64_t at = begin_at + i * layout.stride;
              StoreAt<ModeF32, kTail>(
                  to, at, lanes, round(LoadAt<From, kTail>(from, at, lanes), encode, decode, at));
            }
          }
        });
  };
  for (std::int64_t row = 0; row < layout.rows; row += tall)
    for (std::int64_t begin = 0; begin < layout.length; begin += block) tile(row, begin);
}

ADA_INLINE std::uint32_t LargestLane(U v) {
#if defined(__AVX512F__)
  return _mm512_reduce_max_epu32((__m512i)v);
#elif defined(__AVX2__)
  const __m256i eight = _mm256_max_epu32((__m256i)v.low, (__m256i)v.high);
  __m128i four = _mm_max_epu32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0x4e));
  four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0xb1));
  return static_cast<std::uint32_t>(_mm_cvtsi128_si32(four));
#else
  return LargestOf(v);
#endif
}

// Blocks of values that follow each other in memory.
template <class From, bool kStochastic, bool kDivides>
void QuantizeLines(const BlockArgs& args, const BlockRules& rules) {
  const BlockLayout& layout = args.layout;
  const Rounder16<kStochastic, kDivides> round(rules, args);
  const TensorSpan from = args.from, to = SpanOf(args.to);
  const std::int64_t block = args.format.block, tall = args.format.square ? block : 1;
  // Sixteen tiles of `rows` lines, the first of them from value `begin` of its line on.
  const auto sixteen = [&](std::int64_t first, std::int64_t rows, std::int64_t begin,
                           const TensorFactors& tensor) __attribute__((always_inline)) {
    std::uint32_t largest[kLanes] = {};
    const auto columns = [&](int k) {
      const std::int64_t at = begin + k * block;
      return at + block < layout.length ? block : layout.length - at;
    };
    int tiles = 0;
    for (; tiles < kLanes && begin + tiles * block < layout.length; ++tiles) {
      U most{};
      for (std::int64_t r = 0; r < rows; ++r) {
        const std::int64_t line = first + r * layout.row_stride + begin + tiles * block;
        ForValues(
            columns(tiles), [&](std::int64_t i, int lanes,
                                auto tail) __attribute__((always_inline)) {
              constexpr bool kTail = decltype(tail)::value;
              most = MaxBits(most, Magnitude(LoadAt<From, kTail>(from, line + i, lanes)));
            });
      }
      largest[tiles] = LargestLane(most);
    }
    U all;
    LoadParts(largest, all);
    const BlockFactors factors = FactorsOf(rules, tensor, all);
    float encode[kLanes], decode[kLanes];
    StoreF(encode, factors.encode), StoreF(decode, factors.decode);
    for (int k = 0; k < tiles; ++k) {
      const F e = Fill(encode[k]), d = Fill(decode[k]);
      for (std::int64_t r = 0; r < rows; ++r) {
        const std::int64_t line = first + r * layout.row_stride + begin + k * block;
        ForValues(
            columns(k), [&](std::int64_t i, int lanes, auto tail) __attribute__((always_inline)) {
              constexpr bool kTail = decltype(tail)::value;
              const std::int64_t at = line + i;
              StoreAt<ModeF32, kTail>(to, at, lanes,
                                      round(LoadAt<From, kTail>(from, at, lanes), e, d, at));
            });
      }
    }
  };
  for (std::int64_t m = 0; m < layout.matrices; ++m) {
    for (std::int64_t row = 0; row < layout.rows; row += tall) {
      const TensorFactors of_line =
          Broadcast(args.tensors[args.tensor_each ? m * layout.rows + row : 0]);
      const std::int64_t rows = row + tall < layout.rows ? tall : layout.rows - row;
      for (std::int64_t begin = 0; begin < layout.length; begin += kLanes * block)
        sixteen(m * layout.matrix_stride + row * layout.row_stride, rows, begin, of_line);
    }
  }
}

template <bool kStochastic, bool kDivides>
void QuantizeAs(const BlockArgs& args, const BlockRules& rules) {
  ForStorage(args.from.storage, [&](auto mode) {
    if (args.layout.stride == 1)
      QuantizeLines<decltype(mode), kStochastic, kDivides>(args, rules);
    else
      QuantizeLanes<decltype(mode), kStochastic, kDivides>(args, rules);
  });
}

void Quantize(const BlockArgs& args) {
  const BlockRules rules = RulesOf(args.format, args.bf16_input);
  if (rules.grid.divides)
    args.stochastic ? QuantizeAs<true, true>(args, rules) : QuantizeAs<false, true>(args, rules);
  else
    args.stochastic ? QuantizeAs<true, false>(args, rules) : QuantizeAs<false, false>(args, rules);
}

void LargestEach(const float* x, std::uint32_t* largest, std::int64_t n) {
  const TensorSpan from = SpanOf(x), to = SpanOf(reinterpret_cast<const float*>(largest));
  ForValues(
      n, [&](std::int64_t i, int lanes, auto tail) __attribute__((always_inline)) {
        constexpr bool kTail = decltype(tail)::value;
        const U u = Magnitude(LoadAt<ModeF32, kTail>(from, i, lanes));
        const U before = Bits(LoadAt<ModeF32, kTail>(to, i, lanes));
        StoreAt<ModeF32, kTail>(to, i, lanes, Float(Select((I)u > (I)before, u, before)));
      });
}

template <class From>
void HadamardOf(const HadamardSigns& signs, const TensorSpan& from, float* to, std::int64_t step,
                std::int64_t lanes, const NumberFormat& format) {
  const bool rounds = !(format == kFp32);
  const Grid grid(format);
  const TensorSpan out = SpanOf(to);
  ForValues(
      lanes, [&](std::int64_t at, int count, auto tail) __attribute__((always_inline)) {
        constexpr bool kTail = decltype(tail)::value;
        F rows[kHadamardSize];
        for (int i = 0; i < kHadamardSize; ++i)
          rows[i] =
              LoadAt<From, kTail>(from, at + i * step, count) * signs[static_cast<std::size_t>(i)];
#pragma GCC unroll 4
        for (int half = 1; half < kHadamardSize; half *= 2)
#pragma GCC unroll 16
          for (int i = 0; i < kHadamardSize; ++i) {
            if ((i & half) != 0) continue;
            const F sum = rows[i] + rows[i + half], difference = rows[i] - rows[i + half];
            rows[i] = sum, rows[i + half] = difference;
          }
        for (int i = 0; i < kHadamardSize; ++i) {
          const F v = rows[i] * 0.25f;
          StoreAt<ModeF32, kTail>(out, at + i * step, count, rounds ? RoundToGrid(v, grid) : v);
        }
      });
}

void Hadamard(const HadamardSigns& signs, const TensorSpan& from, float* to, std::int64_t step,
              std::int64_t lanes, const NumberFormat& format) {
  ForStorage(from.storage,
             [&](auto mode) { HadamardOf<decltype(mode)>(signs, from, to, step, lanes, format); });
}

}  // namespace

const BlockKernels kBlockTable = {Quantize, LargestEach, Hadamard};

}  // namespace ada::backend::cpu::ADA_ISA
