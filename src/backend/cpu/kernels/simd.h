// Sixteen fp32 lanes in GCC's vector types, the loads and stores of every storage, and rounding to
// a format. One source for all instruction sets: the compiler splits the vectors where registers
// are narrower. Scalar definition of the conversions: core/number_format.h.
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
// Bits of magnitudes are below 2^31: signed comparison is cheaper on old sets.
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
  return a < b ? a : b;
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
ADA_INLINE_WIDE H ToBf16(F x) {
  const U u = Bits(x);
  const U rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  const U quiet = (u >> 16) | 0x40u;
  return __builtin_convertvector((I)Magnitude(x) > (I)FillU(0x7f800000u) ? quiet : rounded, H);
}

// --- rounding to any format
// ------------------------------------------------------------------------

// Constants of a format of at most 8 exponent and 23 mantissa bits, as fp32 bits.
struct Grid {
  int shift;                    // mantissa bits dropped
  std::uint32_t half_minus;     // half a spacing, minus the bit that decides ties
  std::uint32_t min_normal;     // bits of 2^(1 - bias)
  float magic;                  // adding and taking it off rounds a subnormal
  std::uint32_t underflow_max;  // |x| <= this rounds to zero (0: none does)
  std::uint32_t below_min;      // |x| < this: below the smallest subnormal
  std::uint32_t overflow_min;   // finite |x| >= this rounds to infinity
  explicit Grid(const NumberFormat& format) {
    shift = 23 - format.mantissa_bits;
    half_minus = shift == 0 ? 0 : (1u << (shift - 1)) - 1;
    min_normal = AsBits(static_cast<float>(format.smallest_normal()));
    magic = static_cast<float>(format.smallest_subnormal() * 0x1p23);
    underflow_max = AsBits(static_cast<float>(format.smallest_subnormal() / 2));
    below_min = AsBits(static_cast<float>(format.smallest_subnormal()));
    if (shift == 0 && format.exponent_bits == 8) underflow_max = 0;
    overflow_min =
        shift == 0 ? 0x7f800000u : AsBits(static_cast<float>(format.largest())) + half_minus + 1;
  }
  static std::uint32_t AsBits(float x) {
    std::uint32_t u;
    std::memcpy(&u, &x, 4);
    return u;
  }
};

ADA_OUTLINE F RoundToGrid(F x, const Grid& grid) {
  if (grid.shift == 0) return x;
  const U u = Magnitude(x), sign = Bits(x) & 0x80000000u;
  const U normal = ((u + grid.half_minus + ((u >> grid.shift) & 1u)) >> grid.shift) << grid.shift;
  const U subnormal = Bits((Float(u) + grid.magic) - grid.magic);
  U r = (I)u < (I)FillU(grid.min_normal) ? subnormal : normal;
  r = (I)u >= (I)FillU(grid.overflow_min) ? FillU(0x7f800000u) : r;
  r = (I)u > (I)FillU(0x7f800000u) ? u : r;
  return Float(r | sign);
}

// --- pieces
// -------------------------------------------------------------------------------------------

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

// Modes: all pieces of a call in one storage with its own rounding, or anything.
struct ModeF32 {
  static constexpr bool kWide = true;  // values may leave the range in which fp32 squares are safe
  static ADA_INLINE F Load(const Piece& p, std::int64_t i) {
    return LoadF(static_cast<const float*>(p.data) + i);
  }
  static ADA_OUTLINE F LoadFirst(const Piece& p, std::int64_t i, int n) {
    alignas(64) float v[16];
    LoadSome(p.data, i, n, v);
    return LoadF(v);
  }
  static ADA_INLINE F Round(F x, const Grid&) { return x; }
  static ADA_INLINE void Store(const Piece& p, std::int64_t i, F v) {
    StoreF(static_cast<float*>(p.data) + i, v);
  }
  static ADA_OUTLINE void StoreFirst(const Piece& p, std::int64_t i, int n, F v) {
    std::memcpy(static_cast<float*>(p.data) + i, &v, static_cast<std::size_t>(n) * 4);
  }
};
template <F (*kFrom)(H), H (*kTo)(F), bool kWideRange>
struct ModeHalf {
  static constexpr bool kWide = kWideRange;
  static ADA_INLINE F Load(const Piece& p, std::int64_t i) {
    return kFrom(LoadH(static_cast<const std::uint16_t*>(p.data) + i));
  }
  static ADA_OUTLINE F LoadFirst(const Piece& p, std::int64_t i, int n) {
    alignas(32) std::uint16_t v[16];
    LoadSome(p.data, i, n, v);
    return kFrom(LoadH(v));
  }
  static ADA_INLINE F Round(F x, const Grid&) { return kFrom(kTo(x)); }
  static ADA_INLINE void Store(const Piece& p, std::int64_t i, F v) {
    StoreH(static_cast<std::uint16_t*>(p.data) + i, kTo(v));
  }
  static ADA_OUTLINE void StoreFirst(const Piece& p, std::int64_t i, int n, F v) {
    const H h = kTo(v);
    std::memcpy(static_cast<std::uint16_t*>(p.data) + i, &h, static_cast<std::size_t>(n) * 2);
  }
};
using ModeF16 = ModeHalf<FromFp16, ToFp16, false>;
using ModeBF16 = ModeHalf<FromBf16, ToBf16, true>;
struct ModeAny {
  static constexpr bool kWide = true;
  static ADA_OUTLINE F Load(const Piece& p, std::int64_t i) {
    switch (p.storage) {
      case Storage::kF16:
        return ModeF16::Load(p, i);
      case Storage::kBF16:
        return ModeBF16::Load(p, i);
      default:
        return ModeF32::Load(p, i);
    }
  }
  static ADA_OUTLINE F LoadFirst(const Piece& p, std::int64_t i, int n) {
    switch (p.storage) {
      case Storage::kF16:
        return ModeF16::LoadFirst(p, i, n);
      case Storage::kBF16:
        return ModeBF16::LoadFirst(p, i, n);
      default:
        return ModeF32::LoadFirst(p, i, n);
    }
  }
  static ADA_INLINE F Round(F x, const Grid& grid) { return RoundToGrid(x, grid); }
  static ADA_OUTLINE void Store(const Piece& p, std::int64_t i, F v) {
    switch (p.storage) {
      case Storage::kF16:
        return ModeF16::Store(p, i, v);
      case Storage::kBF16:
        return ModeBF16::Store(p, i, v);
      default:
        return ModeF32::Store(p, i, v);
    }
  }
  static ADA_OUTLINE void StoreFirst(const Piece& p, std::int64_t i, int n, F v) {
    switch (p.storage) {
      case Storage::kF16:
        return ModeF16::StoreFirst(p, i, n, v);
      case Storage::kBF16:
        return ModeBF16::StoreFirst(p, i, n, v);
      default:
        return ModeF32::StoreFirst(p, i, n, v);
    }
  }
};

// Calls f(Mode) with the mode that fits pieces of these storages rounded to `format`.
template <class Call>
void Dispatch(std::initializer_list<Piece> pieces, const NumberFormat& format, Call&& f) {
  const Storage first = pieces.begin()->storage;
  bool same = true;
  for (const Piece& p : pieces) same = same && (p.data == nullptr || p.storage == first);
  if (same && first == Storage::kF32 && format == kFp32) return f(ModeF32{});
  if (same && first == Storage::kF16 && format == kFp16) return f(ModeF16{});
  if (same && first == Storage::kBF16 && format == kBf16) return f(ModeBF16{});
  f(ModeAny{});
}

}  // namespace ada::backend::cpu::ADA_ISA
