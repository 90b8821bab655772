// Vectors as wide as the registers, for the loops that count stored values: the compiler keeps sums
// of such vectors in registers, but those of 16 lanes only if registers are that wide.
#pragma once
#include <array>

#include "backend/cpu/kernels/simd.h"

namespace ada::backend::cpu::ADA_ISA {

#if defined(__AVX512F__)
inline constexpr int kWidth = 16;
#elif defined(__AVX2__)
inline constexpr int kWidth = 8;
#else
inline constexpr int kWidth = 4;
#endif
typedef std::int32_t Ints __attribute__((vector_size(4 * kWidth)));
typedef std::uint32_t Unsigned __attribute__((vector_size(4 * kWidth)));
typedef float Half __attribute__((vector_size(2 * kWidth)));
typedef double Doubles __attribute__((vector_size(4 * kWidth)));
typedef std::int64_t Longs __attribute__((vector_size(4 * kWidth)));

template <class T, class From>
ADA_INLINE T LoadAs(const From* at) {
  T v;
  std::memcpy(&v, at, sizeof v);
  return v;
}
// Magnitudes compare as signed integers.
ADA_INLINE Ints Magnitudes(const float* at) { return LoadAs<Ints>(at) & 0x7fffffff; }

ADA_INLINE Doubles ToDoubles(Half x) {
#if defined(__AVX512F__)
  return ToDouble(x);
#elif defined(__AVX2__)
  return (Doubles)_mm256_cvtps_pd((__m128)x);
#else
  return __builtin_convertvector(x, Doubles);
#endif
}
// Squares of fp32 values are exact in double, so that it does not matter whether they are rounded.
ADA_INLINE Doubles AddSquare(Doubles sum, Doubles d) {
#if defined(__AVX512F__)
  return (Doubles)_mm512_fmadd_pd((__m512d)d, (__m512d)d, (__m512d)sum);
#elif defined(__AVX2__)
  return (Doubles)_mm256_fmadd_pd((__m256d)d, (__m256d)d, (__m256d)sum);
#else
  return sum + d * d;
#endif
}

// sum + d, on the units that multiply.
ADA_INLINE Doubles AddByProduct(Doubles sum, Doubles d) {
#if defined(__AVX512F__)
  __m512d one = _mm512_set1_pd(1);
  asm("" : "+v"(one));
  return (Doubles)_mm512_fmadd_pd((__m512d)d, one, (__m512d)sum);
#else
  return sum + d;
#endif
}

// The word in which only this bit is set; 0 if there is no such bit.
ADA_INLINE Unsigned BitAt(Unsigned bit) {
#if defined(__AVX512F__)
  return (Unsigned)_mm512_sllv_epi32(_mm512_set1_epi32(1), (__m512i)bit);
#elif defined(__AVX2__)
  return (Unsigned)_mm256_sllv_epi32(_mm256_set1_epi32(1), (__m256i)bit);
#elif defined(__SSE2__)  // has no shifts by as many bits as a lane says
  // A power of two, made from its exponent; one too large for a signed integer becomes bit 31.
  const auto power = (__m128)((bit + 127u) << 23);
  return (Unsigned)_mm_cvttps_epi32(power) & (Unsigned)(bit < 32u);
#else
  return ((Unsigned{} + 1u) << (bit & 31u)) & (Unsigned)(bit < 32u);
#endif
}
// Bit by bit: sum becomes the lower place of sum + a + b; returns the higher one.
ADA_INLINE Unsigned FullAdd(Unsigned& sum, Unsigned a, Unsigned b) {
#if defined(__AVX512F__)
  const __m512i x = (__m512i)sum, y = (__m512i)a, z = (__m512i)b;
  sum = (Unsigned)_mm512_ternarylogic_epi32(x, y, z, 0x96);
  return (Unsigned)_mm512_ternarylogic_epi32(x, y, z, 0xe8);
#else
  const Unsigned one = sum ^ a, carry = (sum & a) | (one & b);
  sum = one ^ b;
  return carry;
#endif
}

// The smallest that is not zero, the largest, and how many are zeros.
// Lanes of bits of magnitudes. Zeros are no smallest: where all are zero, min stays at its start.
// The AVX-512 version counts down at each value that is not zero; the caller adds the number of
// all.
struct ExtremeLanes {
  Ints min = Ints{} + 0x7fffffff, max{}, zeros{};

  ADA_INLINE void Add(Ints u) {
#if defined(__AVX512F__)
    const __m512i v = (__m512i)u, least = (__m512i)min, count = (__m512i)zeros;
    const __mmask16 some = _mm512_test_epi32_mask(v, v);
    min = (Ints)_mm512_mask_min_epi32(least, some, least, v);
    zeros = (Ints)_mm512_mask_sub_epi32(count, some, count, _mm512_set1_epi32(1));
#else
    const Ints zero = u == 0;
    const Ints others = u | (zero & 0x7fffffff);
    min = others < min ? others : min;
    zeros -= zero;
#endif
    max = u > max ? u : max;
  }
};

ADA_INLINE std::int64_t Total(Ints v) {
#if defined(__AVX512F__)
  return _mm512_reduce_add_epi32((__m512i)v);
#else
  std::int32_t total = 0;
  for (int k = 0; k < kWidth; ++k) total += v[k];
  return total;
#endif
}
ADA_INLINE std::int32_t Smallest(Ints v) {
#if defined(__AVX512F__)
  return _mm512_reduce_min_epi32((__m512i)v);
#elif defined(__AVX2__)
  __m128i least =
      _mm_min_epi32(_mm256_castsi256_si128((__m256i)v), _mm256_extracti128_si256((__m256i)v, 1));
  least = _mm_min_epi32(least, _mm_shuffle_epi32(least, 0x4e));
  return _mm_cvtsi128_si32(_mm_min_epi32(least, _mm_shuffle_epi32(least, 0xb1)));
#else
  std::int32_t smallest = v[0];
  for (int k = 1; k < kWidth; ++k) smallest = v[k] < smallest ? v[k] : smallest;
  return smallest;
#endif
}

// Numbers of magnitudes u, 1 <= u < end, for several ends, lane by lane.
// One subtraction turns "from 1 to below end" into one signed comparison: 0 becomes the largest
// number.
template <int kEnds>
class Counts {
 public:
  explicit Counts(const std::array<std::uint32_t, kEnds>& ends) {
    for (int k = 0; k < kEnds; ++k) ends_[k] = static_cast<std::int32_t>(ends[k] + kMost);
  }
  // Counts n values in the counts kFirst, kFirst + 1, and so on. It is unrolled, so that these are
  // registers.
  template <int kFirst = 0>
  ADA_INLINE void Add(const float* x, int n) {
    Counts counts = *this;
    for (int i = 0; i < n; i += kWidth) {
      // 1, 2, .. become the least numbers, 0 the largest.
      const Ints u = (Ints)((Unsigned)Magnitudes(x + i) + kMost);
#pragma GCC unroll 4
      for (int k = kFirst; k < kEnds; ++k) Count(counts.counts_[k], u, ends_[k]);
    }
    *this = counts;
  }
  std::int64_t operator[](int k) const { return Total(counts_[k]); }

 private:
  static constexpr std::uint32_t kMost = 0x7fffffffu;
  static ADA_INLINE void Count(Ints& count, Ints u, std::int32_t end) {
#if defined(__AVX512F__)
    const __mmask16 less = _mm512_cmplt_epi32_mask((__m512i)u, _mm512_set1_epi32(end));
    const __m512i c = (__m512i)count;
    count = (Ints)_mm512_mask_add_epi32(c, less, c, _mm512_set1_epi32(1));
#else
    count -= u < end;
#endif
  }
  Ints counts_[kEnds]{};
  std::int32_t ends_[kEnds];
};

}  // namespace ada::backend::cpu::ADA_ISA
