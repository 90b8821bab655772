// Sixteen lanes, whatever the registers' width: GCC's vector types where a register holds them all,
// else Pairs of vectors (of Pairs): the compiler keeps each part in a register of its own, but a
// vector wider than its registers in memory.
//
//   avx512          F = 16 floats
//   avx2            F = Pair<8 floats>
//   sse2, generic   F = Pair<Pair<4 floats>>
#pragma once
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

namespace ada::backend::cpu::ADA_ISA {

#ifdef ADA_SANITIZED  // whose checks in every copy would take the compiler minutes a file
#define ADA_INLINE inline
#else
#define ADA_INLINE inline __attribute__((always_inline))
#endif
// For code that is rarely used (tails, formats without a mode of their own) or large where
// registers are narrow: one copy instead of hundreds limits compile time.
#define ADA_OUTLINE inline __attribute__((noinline))
#ifdef __AVX2__
#define ADA_INLINE_WIDE ADA_INLINE
#else
#define ADA_INLINE_WIDE ADA_OUTLINE
#endif

// Operators work on both halves; conversions between types of the same width keep bits. Nested, it
// makes sixteen lanes of four registers.
template <class V>
struct Pair {
  V low, high;

  // The same bits.
  template <class W>
  ADA_INLINE explicit operator Pair<W>() const {
    return {(W)low, (W)high};
  }
  ADA_INLINE Pair operator~() const { return {~low, ~high}; }
  ADA_INLINE auto operator[](int k) const {
    constexpr int kHalf = sizeof(V) / sizeof(low[0]);
    return k < kHalf ? low[k] : high[k - kHalf];
  }
};

template <class V>
using ElementOf = std::remove_cvref_t<decltype(std::declval<const V&>()[0])>;
template <class S>
concept Scalar = std::is_arithmetic_v<S>;

// A scalar operand is first converted to the element's type, as GCC's vector types do.
#define ADA_PAIR_OPERATOR(op)                                                \
  template <class V>                                                         \
  ADA_INLINE auto operator op(const Pair<V>& a, const Pair<V>& b) {          \
    return Pair<decltype(a.low op b.low)>{a.low op b.low, a.high op b.high}; \
  }                                                                          \
  template <class V, Scalar S>                                               \
  ADA_INLINE auto operator op(const Pair<V>& a, S s) {                       \
    const auto b = static_cast<ElementOf<V>>(s);                             \
    return Pair<decltype(a.low op b)>{a.low op b, a.high op b};              \
  }                                                                          \
  template <class V, Scalar S>                                               \
  ADA_INLINE auto operator op(S s, const Pair<V>& b) {                       \
    const auto a = static_cast<ElementOf<V>>(s);                             \
    return Pair<decltype(a op b.low)>{a op b.low, a op b.high};              \
  }
#define ADA_PAIR_ASSIGNMENT(op)                                \
  ADA_PAIR_OPERATOR(op)                                        \
  template <class V, class B>                                  \
  ADA_INLINE Pair<V>& operator op##=(Pair<V>& a, const B& b) { \
    return a = a op b;                                         \
  }
ADA_PAIR_ASSIGNMENT(+)
ADA_PAIR_ASSIGNMENT(-)
ADA_PAIR_ASSIGNMENT(*)
ADA_PAIR_ASSIGNMENT(/)
ADA_PAIR_ASSIGNMENT(&)
ADA_PAIR_ASSIGNMENT(|)
ADA_PAIR_ASSIGNMENT(^)
ADA_PAIR_ASSIGNMENT(<<)
ADA_PAIR_ASSIGNMENT(>>)
ADA_PAIR_OPERATOR(==)
ADA_PAIR_OPERATOR(!=)
ADA_PAIR_OPERATOR(<)
ADA_PAIR_OPERATOR(<=)
ADA_PAIR_OPERATOR(>)
ADA_PAIR_OPERATOR(>=)
#undef ADA_PAIR_ASSIGNMENT
#undef ADA_PAIR_OPERATOR

inline constexpr int kLanes = 16;
#if defined(__AVX512F__)
inline constexpr int kRegister = 64;
template <class V>
using Parts = V;
#elif defined(__AVX2__)
inline constexpr int kRegister = 32;
template <class V>
using Parts = Pair<V>;
#else
inline constexpr int kRegister = 16;
template <class V>
using Parts = Pair<Pair<V>>;
#endif
typedef float Floats __attribute__((vector_size(kRegister)));
typedef std::int32_t Signeds __attribute__((vector_size(kRegister)));
typedef std::uint32_t Unsigneds __attribute__((vector_size(kRegister)));
typedef double Reals __attribute__((vector_size(kRegister)));
// Sixteen lanes each: floats, signed and unsigned numbers; a comparison gives an I whose lanes are
// 0 or -1.
using F = Parts<Floats>;
using I = Parts<Signeds>;
using U = Parts<Unsigneds>;
using D = Parts<Reals>;  // 8 lanes
#ifdef __AVX2__
typedef std::uint16_t H __attribute__((vector_size(32)));
typedef std::int16_t S __attribute__((vector_size(32)));
#else
typedef std::uint16_t Codes __attribute__((vector_size(16)));
typedef std::int16_t SignedCodes __attribute__((vector_size(16)));
using H = Pair<Codes>;
using S = Pair<SignedCodes>;
#endif

// Works on one register; it is fused where the processor has that.
ADA_INLINE Floats FusedMultiplyAdd(Floats a, Floats b, Floats sum) {
#if defined(__AVX512F__)
  return (Floats)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)sum);
#elif defined(__AVX2__)
  return (Floats)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)sum);
#else
  return sum + a * b;
#endif
}

// mask ? a : b, lane by lane; lanes of a mask are 0 or -1.
template <class M, class V>
ADA_INLINE V Select(M mask, V a, V b) {
  return mask ? a : b;
}
template <class M, class V>
ADA_INLINE Pair<V> Select(const Pair<M>& mask, const Pair<V>& a, const Pair<V>& b) {
  return {Select(mask.low, a.low, b.low), Select(mask.high, a.high, b.high)};
}

// Numbers of one type as another of the same width (towards zero).
template <class T, class V>
ADA_INLINE T Convert(V v) {
  return __builtin_convertvector(v, T);
}
template <class T, class V>
ADA_INLINE T Convert(const Pair<V>& v) {
  using Part = decltype(T::low);
  return {Convert<Part>(v.low), Convert<Part>(v.high)};
}
ADA_INLINE I ToInts(F x) { return Convert<I>(x); }
ADA_INLINE F ToFloats(I x) { return Convert<F>(x); }

// 16 bits to 32 and, of numbers below 2^16, back.
ADA_INLINE U ToUnsigned(H v) {
#if defined(__AVX512F__)
  return (U)_mm512_cvtepu16_epi32((__m256i)v);
#elif defined(__AVX2__)
  return {(Unsigneds)_mm256_cvtepu16_epi32(_mm256_castsi256_si128((__m256i)v)),
          (Unsigneds)_mm256_cvtepu16_epi32(_mm256_extracti128_si256((__m256i)v, 1))};
#else
  const auto halves = [](Codes c) __attribute__((always_inline)) {
    return Pair<Unsigneds>{
        (Unsigneds)__builtin_shufflevector(c, Codes{}, 0, 8, 1, 9, 2, 10, 3, 11),
        (Unsigneds)__builtin_shufflevector(c, Codes{}, 4, 12, 5, 13, 6, 14, 7, 15)};
  };
  return {halves(v.low), halves(v.high)};
#endif
}
// The upper halves are cut off, not saturated.
ADA_INLINE H ToCodes(U v) {
#if defined(__AVX512F__)
  return (H)_mm512_cvtepi32_epi16((__m512i)v);
#elif defined(__AVX2__)
  const __m256i packed = _mm256_packus_epi32((__m256i)v.low, (__m256i)v.high);
  return (H)_mm256_permute4x64_epi64(packed, 0xd8);
#elif defined(__SSE2__)
  const I s = (I)(v << 16) >> 16;  // packing saturates signed numbers
  return {(Codes)_mm_packs_epi32((__m128i)s.low.low, (__m128i)s.low.high),
          (Codes)_mm_packs_epi32((__m128i)s.high.low, (__m128i)s.high.high)};
#else
  const auto packed = [](const Pair<Unsigneds>& u) __attribute__((always_inline)) {
    return __builtin_shufflevector((Codes)u.low, (Codes)u.high, 0, 2, 4, 6, 8, 10, 12, 14);
  };
  return {packed(v.low), packed(v.high)};
#endif
}

// Lanes 0..7 and 8..15.
ADA_INLINE void ToDoubles(F x, D (&d)[2]) {
#if defined(__AVX512F__)
  d[0] = (D)_mm512_cvtps_pd(_mm512_castps512_ps256((__m512)x));
  d[1] = (D)_mm512_cvtps_pd(_mm512_extractf32x8_ps((__m512)x, 1));
#elif defined(__AVX2__)
  const auto half = [](Floats v) __attribute__((always_inline)) {
    return D{(Reals)_mm256_cvtps_pd(_mm256_castps256_ps128((__m256)v)),
             (Reals)_mm256_cvtps_pd(_mm256_extractf128_ps((__m256)v, 1))};
  };
  d[0] = half(x.low), d[1] = half(x.high);
#else
  const auto quarter = [](Floats v) __attribute__((always_inline)) {
#if defined(__SSE2__)
    const auto q = (__m128)v;
    return Pair<Reals>{(Reals)_mm_cvtps_pd(q), (Reals)_mm_cvtps_pd(_mm_movehl_ps(q, q))};
#else
    return Pair<Reals>{__builtin_convertvector(__builtin_shufflevector(v, v, 0, 1), Reals),
                       __builtin_convertvector(__builtin_shufflevector(v, v, 2, 3), Reals)};
#endif
  };
  d[0] = {quarter(x.low.low), quarter(x.low.high)};
  d[1] = {quarter(x.high.low), quarter(x.high.high)};
#endif
}

// One bit for each lane of a comparison's result.
#if defined(__AVX512F__)
ADA_INLINE unsigned LaneBits(I v) { return _mm512_test_epi32_mask((__m512i)v, (__m512i)v); }
#else
ADA_INLINE unsigned LaneBits(Signeds v) {
#if defined(__AVX2__)
  return static_cast<unsigned>(_mm256_movemask_ps((__m256)v));
#elif defined(__SSE2__)
  return static_cast<unsigned>(_mm_movemask_ps((__m128)v));
#else
  const Signeds bits = v & Signeds{1, 2, 4, 8};
  return static_cast<unsigned>(bits[0] | bits[1] | bits[2] | bits[3]);
#endif
}
template <class V>
ADA_INLINE unsigned LaneBits(const Pair<V>& v) {
  return LaneBits(v.low) | LaneBits(v.high) << (sizeof(V) / 4);
}
#endif

// 0 to 15.
inline I LaneNumbers() {
  static constexpr std::int32_t kNumbers[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  I v;
  std::memcpy(&v, kNumbers, sizeof v);
  return v;
}

}  // namespace ada::backend::cpu::ADA_ISA
