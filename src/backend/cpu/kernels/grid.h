// Rounding 16 values to any format, nearest or stochastically, to the bits of number/number_grid.h.
// Random words come 16 at a time: four blocks of Philox side by side (number/random.h), each of
// their words in the lower half of 64 bits.
#pragma once
#include "backend/cpu/kernels/simd.h"
#include "number/number_grid.h"
#include "number/random.h"
#include "number/table_grid.h"

namespace ada::backend::cpu::ADA_ISA {

// One word of each of four blocks. The upper halves may hold anything.
#ifdef __AVX2__
typedef std::uint64_t WordOfFour __attribute__((vector_size(32)));
#else
typedef std::uint64_t WordOfTwo __attribute__((vector_size(16)));
using WordOfFour = Pair<WordOfTwo>;
#endif

// Lower halves multiplied: all 64 bits.
ADA_INLINE WordOfFour TimesWord(WordOfFour a, std::uint32_t factor) {
#ifdef __AVX2__
  return (WordOfFour)_mm256_mul_epu32((__m256i)a, _mm256_set1_epi64x(factor));
#elif defined(__SSE2__)
  const __m128i f = _mm_set1_epi64x(factor);
  return {(WordOfTwo)_mm_mul_epu32((__m128i)a.low, f),
          (WordOfTwo)_mm_mul_epu32((__m128i)a.high, f)};
#else
  const auto product = [factor](WordOfTwo w) __attribute__((always_inline)) {
    return WordOfTwo{(w[0] & 0xffffffffu) * factor, (w[1] & 0xffffffffu) * factor};
  };
  return {product(a.low), product(a.high)};
#endif
}

// Block by block; of each, words 0 and 1 in `first`, 2 and 3 in `second`.
// From words of four blocks to the words of one block after the other: a transposition of 4 x 4.
ADA_INLINE U BlockByBlock(WordOfFour first, WordOfFour second) {
#ifdef __AVX2__
  const auto a = (__m256i)first, b = (__m256i)second;
  const __m256i even = _mm256_unpacklo_epi64(a, b), odd = _mm256_unpackhi_epi64(a, b);
  const __m256i low = _mm256_permute2x128_si256(even, odd, 0x20);
  const __m256i high = _mm256_permute2x128_si256(even, odd, 0x31);
#ifdef __AVX512F__
  return (U)_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
#else
  return {(Unsigneds)low, (Unsigneds)high};
#endif
#else
  const auto both = [](WordOfTwo a, WordOfTwo b) {
    return Pair<Unsigneds>{(Unsigneds)__builtin_shufflevector(a, b, 0, 2),
                           (Unsigneds)__builtin_shufflevector(a, b, 1, 3)};
  };
  return {both(first.low, second.low), both(first.high, second.high)};
#endif
}

// As many groups as the registers hold.
#ifdef __AVX512F__
inline constexpr int kWordGroups = 4;
#elif defined(__AVX2__)
inline constexpr int kWordGroups = 2;
#else
inline constexpr int kWordGroups = 1;
#endif

// words[g]: those of blocks `block` + `step` g and of the three after it. Each round of a block
// waits for the one before; those of several groups overlap.
template <int kGroups>
ADA_INLINE void GroupsOfBlocks(std::uint64_t key, std::uint64_t draw, std::uint64_t block,
                               std::uint64_t step, U* words) {
  static constexpr std::uint64_t kFirst[] = {0, 1, 2, 3};
  WordOfFour c0[kGroups], c1[kGroups], c2[kGroups], c3[kGroups];
  for (int g = 0; g < kGroups; ++g) {
    LoadParts(kFirst, c0[g]);
    c0[g] = c0[g] + (block + step * static_cast<std::uint64_t>(g));
    c1[g] = c0[g] >> 32, c2[g] = WordOfFour{} + static_cast<std::uint32_t>(draw);
    c3[g] = WordOfFour{} + (draw >> 32);
  }
  auto k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
#pragma GCC unroll 10
  for (int round = 0; round < philox::kRounds; ++round) {
    const WordOfFour key0 = WordOfFour{} + k0, key1 = WordOfFour{} + k1;
#pragma GCC unroll 4
    for (int g = 0; g < kGroups; ++g) {
      const WordOfFour product0 = TimesWord(c0[g], philox::kMultiply0);
      const WordOfFour product1 = TimesWord(c2[g], philox::kMultiply1);
      c0[g] = (product1 >> 32) ^ c1[g] ^ key0;
      c1[g] = product1;
      c2[g] = (product0 >> 32) ^ c3[g] ^ key1;
      c3[g] = product0;
    }
    k0 += philox::kWeyl0, k1 += philox::kWeyl1;
  }
#pragma GCC unroll 4
  for (int g = 0; g < kGroups; ++g)
    words[g] =
        BlockByBlock((c0[g] & 0xffffffffu) | (c1[g] << 32), (c2[g] & 0xffffffffu) | (c3[g] << 32));
}
// The words of blocks `block` to `block` + 3.
ADA_INLINE U FourBlocks(std::uint64_t key, std::uint64_t draw, std::uint64_t block) {
  U words;
  GroupsOfBlocks<1>(key, draw, block, 4, &words);
  return words;
}

// Random words first .. first + 15 of (key, draw): word j is word j % 4 of block j / 4. If `first`
// is inside a block, the end of one group and the beginning of the next are used.
ADA_OUTLINE U RandomWords(std::uint64_t key, std::uint64_t draw, std::uint64_t first) {
  U words = FourBlocks(key, draw, first / 4);
  if (first % 4 == 0) return words;
  std::uint32_t all[2 * kLanes];
  StoreParts(all, words);
  StoreParts(all + kLanes, FourBlocks(key, draw, first / 4 + 4));
  LoadParts(all + first % 4, words);
  return words;
}

// words[g]: the words from first + step * g on. A negative step wraps around, as sums of unsigned
// numbers do.
ADA_OUTLINE void RandomWordsOfGroups(std::uint64_t key, std::uint64_t draw, std::uint64_t first,
                                     std::int64_t step, U* words) {
  if (first % 4 == 0 && step % 4 == 0)
    return GroupsOfBlocks<kWordGroups>(key, draw, first / 4, static_cast<std::uint64_t>(step / 4),
                                       words);
  for (int g = 0; g < kWordGroups; ++g)
    words[g] = RandomWords(key, draw, first + static_cast<std::uint64_t>(step * g));
}

// The same words, of a stretch of values that is walked through: blocks are made many at a time, so
// that their rounds, each of which waits for the one before, overlap.
class WordsOfStretch {
 public:
  // values: the length of the stretch, whose first value uses word `first`.
  WordsOfStretch(std::uint64_t key, std::uint64_t draw, std::uint64_t first, std::int64_t values)
      : key_(key), draw_(draw), first_(first), last_(first + static_cast<std::uint64_t>(values)) {}

  // Words of values i .. i + 15.
  ADA_INLINE U At(std::int64_t i) {
    const std::uint64_t at = first_ + static_cast<std::uint64_t>(i);
    if (at < begin_ || at + kLanes > end_) Make(at);
    U words;
    LoadParts(words_ + (at - begin_), words);
    return words;
  }

 private:
  static constexpr std::uint64_t kStep = kWordGroups * kLanes, kWords = 256;

  // Makes no more words than the stretch still needs, rounded up to whole groups.
  ADA_OUTLINE void Make(std::uint64_t at) {
    const std::uint64_t begin = at / 4 * 4, least = at + kLanes > last_ ? at + kLanes : last_;
    const std::uint64_t needed = least - begin < kWords ? least - begin : kWords;
    const std::uint64_t key = key_, draw = draw_;
    std::uint64_t made = 0;
    for (; made < needed; made += kStep) {
      U words[kWordGroups];
      GroupsOfBlocks<kWordGroups>(key, draw, (begin + made) / 4, 4, words);
      for (int g = 0; g < kWordGroups; ++g) StoreParts(words_ + made + g * kLanes, words[g]);
    }
    begin_ = begin, end_ = begin + made;
  }

  std::uint64_t key_, draw_, first_, last_;
  std::uint64_t begin_ = 1, end_ = 0;  // of what is in words_
  alignas(64) std::uint32_t words_[kWords];
};

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

// By a table. What leaves the format is counted by being inf or NaN; what saturates is inf before
// rounding instead. given: without the scale of the tensor, which may bring it beyond
// fp32.
ADA_OUTLINE Rounded RoundByTables(F x, F given, std::int64_t i, const Rounder& rounder) {
  const Rounding& how = rounder.rounding;
  const TableGrid& grid = TableGridAt(rounder.grid.table);
  U random{};
  if (how.stochastic)
    random = RandomWords(how.key, how.draw, how.first + static_cast<std::uint64_t>(i));
  float before[kLanes], unscaled[kLanes], after[kLanes];
  StoreF(before, x);
  StoreF(unscaled, given);
  for (int k = 0; k < kLanes; ++k) {
    auto value = static_cast<double>(before[k]);
    if (__builtin_isinf(before[k]))
      value = static_cast<double>(unscaled[k]) * static_cast<double>(how.scale);
    const TableRounded r =
        RoundByTable(grid, value, rounder.grid.saturates, how.stochastic, random[k]);
    after[k] = r.value;
    if (r.left && __builtin_isfinite(r.value)) before[k] = __builtin_inff();
  }
  const F r = LoadF(after);
  return {LoadF(before), r, how.scale != 1 ? r / Fill(how.scale) : r};
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
