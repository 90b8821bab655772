// Sixteen fp32 lanes in GCC's vector types, and the codes of fp16 and bf16. One source for all
// instruction sets: the compiler splits the vectors where registers are narrower. Scalar definition
// of the conversions: core/number_format.h.
#pragma once
#include <cstdint>
#include <cstring>

#include "backend/cpu/kernels.h"

#if defined(__F16C__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace ada::backend::cpu::ADA_ISA {

inline constexpr int kLanes = 16;
typedef float F __attribute__((vector_size(64)));
typedef std::int32_t I __attribute__((vector_size(64)));
typedef std::uint32_t U __attribute__((vector_size(64)));
typedef std::uint16_t H __attribute__((vector_size(32)));
typedef double D __attribute__((vector_size(64)));  // 8 lanes
typedef float F8 __attribute__((vector_size(32)));

#define ADA_INLINE inline __attribute__((always_inline))
// For what is rare (tails, formats without a mode of their own) or large where registers are
// narrow: one copy instead of hundreds keeps compile time in bounds.
#define ADA_OUTLINE inline __attribute__((noinline))
#ifdef __AVX512F__
#define ADA_INLINE_WIDE ADA_INLINE
#else
#define ADA_INLINE_WIDE ADA_OUTLINE
#endif

ADA_INLINE F Fill(float x) { return F{} + x; }
ADA_INLINE U FillU(std::uint32_t x) { return U{} + x; }
ADA_INLINE U Bits(F x) { return (U)x; }
ADA_INLINE F Float(U x) { return (F)x; }
ADA_INLINE U Magnitude(F x) { return Bits(x) & 0x7fffffffu; }
ADA_INLINE F Max(F a, F b) { return a > b ? a : b; }
ADA_INLINE F Min(F a, F b) { return a < b ? a : b; }
// a < b of all 32 bits: narrower sets compare signed numbers only.
ADA_INLINE I Less(U a, U b) {
#ifdef __AVX512F__
  return (I)(a < b);
#else
  return (I)(a ^ 0x80000000u) < (I)(b ^ 0x80000000u);
#endif
}
// Bits of magnitudes are below 2^31.
ADA_INLINE U MaxBits(U a, U b) {
#ifdef __AVX512F__
  return reinterpret_cast<U>(
      _mm512_max_epu32(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#else
  return (I)a > (I)b ? a : b;
#endif
}
ADA_INLINE U MinBits(U a, U b) {
#ifdef __AVX512F__
  return reinterpret_cast<U>(
      _mm512_min_epu32(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#else
  return Less(a, b) ? a : b;
#endif
}
inline I LaneNumbers() { return I{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}; }
// All ones in the first n lanes.
ADA_INLINE I FirstLanes(int n) { return LaneNumbers() < (I{} + n); }

// --- fp16 and bf16 codes -------------------------------------------------------------------------

ADA_INLINE_WIDE F FromFp16(H code) {
#if defined(__AVX512F__)
  return reinterpret_cast<F>(_mm512_cvtph_ps(reinterpret_cast<__m256i>(code)));
#elif defined(__F16C__)
  union {
    H h;
    __m128i half[2];
  } in{code};
  union {
    __m256 half[2];
    F f;
  } out;
  out.half[0] = _mm256_cvtph_ps(in.half[0]);
  out.half[1] = _mm256_cvtph_ps(in.half[1]);
  return out.f;
#else
  const U wide = __builtin_convertvector(code, U);
  const U magnitude = (wide & 0x7fffu) << 13;
  const F scaled = Float(magnitude) * 0x1p112f;  // exponent 2^(127 - 15); subnormals come out exact
  const U special = (U)(magnitude >= FillU(0x7c00u << 13)) & 0x7f800000u;
  return Float(Bits(scaled) | special | ((wide & 0x8000u) << 16));
#endif
}

// `x` lies on the fp16 grid or is to be rounded to it (nearest even).
ADA_INLINE_WIDE H ToFp16(F x) {
#if defined(__AVX512F__)
  return reinterpret_cast<H>(
      _mm512_cvtps_ph(reinterpret_cast<__m512>(x), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#elif defined(__F16C__)
  union {
    F f;
    __m256 half[2];
  } in{x};
  union {
    __m128i half[2];
    H h;
  } out;
  out.half[0] = _mm256_cvtps_ph(in.half[0], _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  out.half[1] = _mm256_cvtps_ph(in.half[1], _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  return out.h;
#else
  const U u = Magnitude(x), sign = (Bits(x) >> 16) & 0x8000u;
  const U normal = (u - (112u << 23) + 0xfffu + ((u >> 13) & 1u)) >> 13;
  const F tiny = Float(u) + 0.5f;  // ulp(0.5) = 2^-24, the spacing of fp16's subnormals
  const U subnormal = Bits(tiny) - 0x3f000000u;
  U code = (I)u < (I)FillU(113u << 23) ? subnormal : normal;
  code = (I)u >= (I)FillU(0x477ff000u) ? FillU(0x7c00u) : code;
  code = (I)u > (I)FillU(0x7f800000u) ? FillU(0x7e00u) : code;
  return __builtin_convertvector(code | sign, H);
#endif
}

ADA_INLINE F FromBf16(H code) { return Float(__builtin_convertvector(code, U) << 16); }
// Of a value that bf16 holds, with quiet NaNs.
ADA_INLINE H CodeOfBf16(F x) { return __builtin_convertvector(Bits(x) >> 16, H); }
ADA_INLINE_WIDE H ToBf16(F x) {
  const U u = Bits(x);
  const U rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  const U quiet = (u >> 16) | 0x40u;
  return __builtin_convertvector((I)Magnitude(x) > (I)FillU(0x7f800000u) ? quiet : rounded, H);
}

// --- double --------------------------------------------------------------------------------------

// GCC 12 converts half vectors one by one.
ADA_INLINE D ToDouble(F8 x) {
#if defined(__AVX512F__)
  return reinterpret_cast<D>(_mm512_cvtps_pd(reinterpret_cast<__m256>(x)));
#else
  return __builtin_convertvector(x, D);
#endif
}

// --- memory --------------------------------------------------------------------------------------

ADA_INLINE F LoadF(const float* p) {
  F v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
ADA_INLINE void StoreF(float* p, F v) { std::memcpy(p, &v, sizeof v); }
ADA_INLINE H LoadH(const std::uint16_t* p) {
  H v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
ADA_INLINE void StoreH(std::uint16_t* p, H v) { std::memcpy(p, &v, sizeof v); }

// The first n (1..16) values at p, zeros behind.
template <class T>
ADA_INLINE void LoadSome(const void* p, std::int64_t i, int n, T* out) {
  std::memset(out, 0, 16 * sizeof(T));
  std::memcpy(out, static_cast<const T*>(p) + i, static_cast<std::size_t>(n) * sizeof(T));
}

}  // namespace ada::backend::cpu::ADA_ISA
