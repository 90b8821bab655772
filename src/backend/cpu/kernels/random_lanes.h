// Random words 16 at a time: four blocks of Philox side by side (number/random.h), each of their
// words in the lower half of 64 bits.
#pragma once
#include "backend/cpu/kernels/simd.h"
#include "number/random.h"

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

}  // namespace ada::backend::cpu::ADA_ISA
