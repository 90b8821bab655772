// What kernels do with sixteen lanes (lanes.h), and the codes of fp16 and bf16. One source for all
// instruction sets. Scalar definition of the conversions: number/number_format.h.
#pragma once
#include "backend/cpu/kernels.h"
#include "backend/cpu/kernels/lanes.h"

namespace ada::backend::cpu::ADA_ISA {

typedef float F8 __attribute__((vector_size(32)));

ADA_INLINE F Fill(float x) { return F{} + x; }
ADA_INLINE U FillU(std::uint32_t x) { return U{} + x; }
ADA_INLINE U Bits(F x) { return (U)x; }
ADA_INLINE F Float(U x) { return (F)x; }
// As bits: for finite numbers their order is that of the values.
ADA_INLINE U Magnitude(F x) { return Bits(x) & 0x7fffffffu; }
ADA_INLINE F Max(F a, F b) { return Select(a > b, a, b); }
ADA_INLINE F Min(F a, F b) { return Select(a < b, a, b); }
// A NaN stays.
ADA_INLINE F PositivePart(F x) { return Select(x <= F{}, F{}, x); }
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
#if defined(__AVX512F__)
  return (U)_mm512_max_epu32((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
  return {(Unsigneds)_mm256_max_epu32((__m256i)a.low, (__m256i)b.low),
          (Unsigneds)_mm256_max_epu32((__m256i)a.high, (__m256i)b.high)};
#else
  return Select((I)a > (I)b, a, b);
#endif
}
ADA_INLINE U MinBits(U a, U b) {
#if defined(__AVX512F__)
  return (U)_mm512_min_epu32((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
  return {(Unsigneds)_mm256_min_epu32((__m256i)a.low, (__m256i)b.low),
          (Unsigneds)_mm256_min_epu32((__m256i)a.high, (__m256i)b.high)};
#else
  return Select(Less(a, b), a, b);
#endif
}
ADA_INLINE std::uint32_t LargestOf(U v) {
  std::uint32_t lanes[16], largest = 0;
  std::memcpy(lanes, &v, sizeof lanes);
  for (const std::uint32_t lane : lanes) largest = lane > largest ? lane : largest;
  return largest;
}
// Takes codes below 2^15.
ADA_INLINE H MaxCode(H a, H b) {
#ifdef __AVX2__
  return (H)_mm256_max_epi16((__m256i)a, (__m256i)b);
#else
  return Select((S)a > (S)b, a, b);
#endif
}
// Takes any codes, as numbers without a sign.
ADA_INLINE H MinCode(H a, H b) {
#ifdef __AVX2__
  return (H)_mm256_min_epu16((__m256i)a, (__m256i)b);
#else
  return Select((S)(a ^ 0x8000) < (S)(b ^ 0x8000), a, b);
#endif
}
// All ones in the first n lanes.
ADA_INLINE I FirstLanes(int n) { return LaneNumbers() < (I{} + n); }

// --- fp16 and bf16 codes -------------------------------------------------------------------------

ADA_INLINE_WIDE F FromFp16(H code) {
#if defined(__AVX512F__)
  return (F)_mm512_cvtph_ps((__m256i)code);
#elif defined(__AVX2__)
  return {(Floats)_mm256_cvtph_ps(_mm256_castsi256_si128((__m256i)code)),
          (Floats)_mm256_cvtph_ps(_mm256_extracti128_si256((__m256i)code, 1))};
#else
  const U wide = ToUnsigned(code);
  const U magnitude = (wide & 0x7fffu) << 13;
  const F scaled = Float(magnitude) * 0x1p112f;  // exponent 2^(127 - 15); subnormals come out exact
  // inf and NaN get fp32's exponent of all ones; scaling alone would make them finite.
  const U special = (U)(magnitude >= FillU(0x7c00u << 13)) & 0x7f800000u;
  return Float(Bits(scaled) | special | ((wide & 0x8000u) << 16));
#endif
}

// `x` lies on the fp16 grid or is to be rounded to it (nearest even).
ADA_INLINE_WIDE H ToFp16(F x) {
#if defined(__AVX2__)
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
#endif
#if defined(__AVX512F__)
  return (H)_mm512_cvtps_ph((__m512)x, kNearest);
#elif defined(__AVX2__)
  return (H)_mm256_set_m128i(_mm256_cvtps_ph((__m256)x.high, kNearest),
                             _mm256_cvtps_ph((__m256)x.low, kNearest));
#else
  const U u = Magnitude(x), sign = (Bits(x) >> 16) & 0x8000u;
  const U normal = (u - (112u << 23) + 0xfffu + ((u >> 13) & 1u)) >> 13;
  const F tiny = Float(u) + 0.5f;  // ulp(0.5) = 2^-24, the spacing of fp16's subnormals
  const U subnormal = Bits(tiny) - 0x3f000000u;
  U code = Select((I)u < (I)FillU(113u << 23), subnormal, normal);
  code = Select((I)u >= (I)FillU(0x477ff000u), FillU(0x7c00u), code);
  code = Select((I)u > (I)FillU(0x7f800000u), FillU(0x7e00u), code);
  return ToCodes(code | sign);
#endif
}

ADA_INLINE F FromBf16(H code) { return Float(ToUnsigned(code) << 16); }
// Gives the code of a value that bf16 holds, with quiet NaNs.
ADA_INLINE H CodeOfBf16(F x) { return ToCodes(Bits(x) >> 16); }
ADA_INLINE_WIDE H ToBf16(F x) {
  const U u = Bits(x);
  const U rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  const U quiet = (u >> 16) | 0x40u;
  return ToCodes(Select((I)Magnitude(x) > (I)FillU(0x7f800000u), quiet, rounded));
}

// `code` where that of `mask` is of a positive number, up to infinity's.
ADA_INLINE H KeepPositive(H code, H mask, std::int16_t infinity) {
#ifdef __AVX512F__
  const __m256i below = _mm256_sub_epi16((__m256i)mask, _mm256_set1_epi16(1));
  const __mmask16 keep = _mm256_cmplt_epu16_mask(below, _mm256_set1_epi16(infinity));
  return (H)_mm256_maskz_mov_epi16(keep, (__m256i)code);
#else
  return code & (H)(((S)mask > S{}) & ((S)mask <= S{} + infinity));
#endif
}

// --- double --------------------------------------------------------------------------------------

#if defined(__AVX512F__)
ADA_INLINE D ToDouble(F8 x) { return (D)_mm512_cvtps_pd((__m256)x); }
#endif

// --- memory --------------------------------------------------------------------------------------

// Part by part: each is a load or a store of its own register.
template <class V>
ADA_INLINE void LoadParts(const void* p, V& v) {
  std::memcpy(&v, p, sizeof v);
}
template <class V>
ADA_INLINE void LoadParts(const void* p, Pair<V>& v) {
  LoadParts(p, v.low);
  LoadParts(static_cast<const std::byte*>(p) + sizeof v.low, v.high);
}
template <class V>
ADA_INLINE void StoreParts(void* p, const V& v) {
  std::memcpy(p, &v, sizeof v);
}
template <class V>
ADA_INLINE void StoreParts(void* p, const Pair<V>& v) {
  StoreParts(p, v.low);
  StoreParts(static_cast<std::byte*>(p) + sizeof v.low, v.high);
}
ADA_INLINE F LoadF(const float* p) {
  F v;
  LoadParts(p, v);
  return v;
}
ADA_INLINE void StoreF(float* p, F v) { StoreParts(p, v); }
ADA_INLINE H LoadH(const std::uint16_t* p) {
  H v;
  LoadParts(p, v);
  return v;
}
ADA_INLINE void StoreH(std::uint16_t* p, H v) { StoreParts(p, v); }

// The first n (1..16) values at p, zeros after, and storing as many.
#ifdef __AVX512F__
ADA_INLINE __mmask16 FirstBits(int n) { return static_cast<__mmask16>((1u << n) - 1); }
ADA_INLINE F LoadFirstF(const float* p, int n) { return (F)_mm512_maskz_loadu_ps(FirstBits(n), p); }
ADA_INLINE void StoreFirstF(float* p, int n, F v) {
  _mm512_mask_storeu_ps(p, FirstBits(n), (__m512)v);
}
ADA_INLINE H LoadFirstH(const std::uint16_t* p, int n) {
  return (H)_mm256_maskz_loadu_epi16(FirstBits(n), p);
}
ADA_INLINE void StoreFirstH(std::uint16_t* p, int n, H v) {
  _mm256_mask_storeu_epi16(p, FirstBits(n), (__m256i)v);
}
#else
ADA_OUTLINE F LoadFirstF(const float* p, int n) {
  alignas(64) float v[16] = {};
  std::memcpy(v, p, static_cast<std::size_t>(n) * 4);
  return LoadF(v);
}
ADA_INLINE void StoreFirstF(float* p, int n, F v) {
  alignas(64) float lanes[16];
  StoreF(lanes, v);
  std::memcpy(p, lanes, static_cast<std::size_t>(n) * 4);
}
ADA_OUTLINE H LoadFirstH(const std::uint16_t* p, int n) {
  alignas(32) std::uint16_t v[16] = {};
  std::memcpy(v, p, static_cast<std::size_t>(n) * 2);
  return LoadH(v);
}
ADA_INLINE void StoreFirstH(std::uint16_t* p, int n, H v) {
  alignas(32) std::uint16_t lanes[16];
  StoreH(lanes, v);
  std::memcpy(p, lanes, static_cast<std::size_t>(n) * 2);
}
#endif

}  // namespace ada::backend::cpu::ADA_ISA
