// Random words 16 at a time: four blocks of Philox side by side (core/random.h), each of their
// words in the lower half of 64 bits.
#pragma once
#include "backend/cpu/kernels/simd.h"
#include "core/random.h"

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
#else
  const __m128i f = _mm_set1_epi64x(factor);
  return {(WordOfTwo)_mm_mul_epu32((__m128i)a.low, f),
          (WordOfTwo)_mm_mul_epu32((__m128i)a.high, f)};
#endif
}

// Block by block; of each, words 0 and 1 in `first`, 2 and 3 in `second`.
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
    return Pair<Unsigneds>{(Unsigneds)_mm_unpacklo_epi64((__m128i)a, (__m128i)b),
                           (Unsigneds)_mm_unpackhi_epi64((__m128i)a, (__m128i)b)};
  };
  return {both(first.low, second.low), both(first.high, second.high)};
#endif
}

// The words of blocks `block` to `block` + 3.
ADA_INLINE U FourBlocks(std::uint64_t key, std::uint64_t draw, std::uint64_t block) {
  const std::uint64_t blocks[] = {block, block + 1, block + 2, block + 3};
  WordOfFour c0;
  LoadParts(blocks, c0);
  WordOfFour c1 = c0 >> 32, c2 = WordOfFour{} + static_cast<std::uint32_t>(draw),
             c3 = WordOfFour{} + (draw >> 32);
  auto k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
#pragma GCC unroll 10
  for (int round = 0; round < philox::kRounds; ++round) {
    const WordOfFour product0 = TimesWord(c0, philox::kMultiply0);
    const WordOfFour product1 = TimesWord(c2, philox::kMultiply1);
    c0 = (product1 >> 32) ^ c1 ^ k0;
    c1 = product1;
    c2 = (product0 >> 32) ^ c3 ^ k1;
    c3 = product0;
    k0 += philox::kWeyl0, k1 += philox::kWeyl1;
  }
  return BlockByBlock((c0 & 0xffffffffu) | (c1 << 32), (c2 & 0xffffffffu) | (c3 << 32));
}

// Random words first .. first + 15 of (key, draw): word j lies in block j / 4 at j % 4.
ADA_OUTLINE U RandomWords(std::uint64_t key, std::uint64_t draw, std::uint64_t first) {
  U words = FourBlocks(key, draw, first / 4);
  if (first % 4 == 0) return words;
  std::uint32_t all[2 * kLanes];
  StoreParts(all, words);
  StoreParts(all + kLanes, FourBlocks(key, draw, first / 4 + 4));
  LoadParts(all + first % 4, words);
  return words;
}

}  // namespace ada::backend::cpu::ADA_ISA
