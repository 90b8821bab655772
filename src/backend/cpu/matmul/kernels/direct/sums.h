// Sums of products in registers: a block of rows times 16 columns each, or of rows times twice 16.
// One source for the widths: F is one register of 16 lanes or two of 8. Factors are fp32 values or,
// compiled with AVX-512's products of bf16, pairs of bf16 values whose two products are added.
#pragma once
#include "backend/cpu/kernels/modes.h"
#include "backend/cpu/matmul/matmul_kernels.h"

namespace ada::backend::cpu::ADA_ISA {

// Blocks of fp32 values are transposed: to[k * to_step + r] = from[r * from_step + k], for r and k
// below 8.
ADA_INLINE void Transpose8(const float* from, std::int64_t from_step, float* to,
                           std::int64_t to_step) {
  __m256 rows[8], pairs[8], quads[8];
#pragma GCC unroll 8
  for (int r = 0; r < 8; ++r) rows[r] = _mm256_loadu_ps(from + r * from_step);
#pragma GCC unroll 4
  for (int r = 0; r < 8; r += 2) {
    pairs[r] = _mm256_unpacklo_ps(rows[r], rows[r + 1]);
    pairs[r + 1] = _mm256_unpackhi_ps(rows[r], rows[r + 1]);
  }
  // Values k and k + 4 of four rows.
#pragma GCC unroll 2
  for (int r = 0; r < 8; r += 4) {
    quads[r] = _mm256_shuffle_ps(pairs[r], pairs[r + 2], 0x44);
    quads[r + 1] = _mm256_shuffle_ps(pairs[r], pairs[r + 2], 0xee);
    quads[r + 2] = _mm256_shuffle_ps(pairs[r + 1], pairs[r + 3], 0x44);
    quads[r + 3] = _mm256_shuffle_ps(pairs[r + 1], pairs[r + 3], 0xee);
  }
#pragma GCC unroll 4
  for (int k = 0; k < 4; ++k) {
    _mm256_storeu_ps(to + k * to_step, _mm256_permute2f128_ps(quads[k], quads[k + 4], 0x20));
    _mm256_storeu_ps(to + (k + 4) * to_step, _mm256_permute2f128_ps(quads[k], quads[k + 4], 0x31));
  }
}

// The same, for r and k below 16.
ADA_INLINE void Transpose16(const float* from, std::int64_t from_step, float* to,
                            std::int64_t to_step) {
#pragma GCC unroll 2
  for (int r = 0; r < 16; r += 8)
#pragma GCC unroll 2
    for (int k = 0; k < 16; k += 8)
      Transpose8(from + r * from_step + k, from_step, to + k * to_step + r, to_step);
}

// Rows whose sums, with a row of each factor, fit in the registers: for one block of 16 columns and
// for two. kRowsOfTwo = 0: two do not.
#ifdef __AVX512F__
inline constexpr int kRowsOfOne = 16, kRowsOfTwo = 8;
#else
inline constexpr int kRowsOfOne = 6, kRowsOfTwo = 0;
#endif

inline constexpr int kParts = 64 / kRegister;  // registers of 16 lanes
#ifdef __AVX512BF16__
inline constexpr bool kPairs = true;
#else
inline constexpr bool kPairs = false;
#endif

// Multiplies what packed pixels hold: fp32 values or pairs of bf16 values.
ADA_INLINE Floats MultiplyAdd(Floats a, Floats b, Floats sum) {
#ifdef __AVX512BF16__
  return (Floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
#else
  return FusedMultiplyAdd(a, b, sum);
#endif
}
// Broadcasts 4 bytes, which need not be aligned.
ADA_INLINE Floats Broadcast(const std::byte* from) {
  float x;
  std::memcpy(&x, from, sizeof x);
#ifdef __AVX512F__
  return (Floats)_mm512_set1_ps(x);
#else
  return (Floats)_mm256_set1_ps(x);
#endif
}

// kRows rows of 16 * kColumns sums, register by register: the compiler keeps arrays of them in
// registers, but not with bf16 dot.
template <int kRows, int kColumns>
struct Sums {
  Floats of[kColumns * kParts][kRows];

  ADA_INLINE void Zero() {
#pragma GCC unroll 4
    for (int c = 0; c < kColumns * kParts; ++c)
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) of[c][r] = Floats{};
  }
  // Row r: the value (or pair) r * bytes after x times 16 values at y, and 16 values `column`
  // values after them.
  ADA_INLINE void Add(const std::byte* x, std::int64_t bytes, const float* y, std::int64_t column) {
    Floats factors[kColumns * kParts];
#pragma GCC unroll 4
    for (int c = 0; c < kColumns * kParts; ++c)
      LoadParts(y + c / kParts * column + c % kParts * (16 / kParts), factors[c]);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const Floats factor = Broadcast(x + r * bytes);
#pragma GCC unroll 4
      for (int c = 0; c < kColumns * kParts; ++c)
        of[c][r] = MultiplyAdd(factors[c], factor, of[c][r]);
    }
  }
  // Between the registers and memory: as many values as there are sums, at a multiple of 64 bytes.
  ADA_INLINE void Keep(float* to) const {
#pragma GCC unroll 4
    for (int c = 0; c < kColumns * kParts; ++c)
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) StoreParts(to + (c * kRows + r) * (16 / kParts), of[c][r]);
  }
  ADA_INLINE void AddTo(const float* others) {
#pragma GCC unroll 4
    for (int c = 0; c < kColumns * kParts; ++c)
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        Floats other;
        LoadParts(others + (c * kRows + r) * (16 / kParts), other);
        of[c][r] = other + of[c][r];
      }
  }
  // Sums of a row and 16 columns.
#ifdef __AVX512F__
  ADA_INLINE F Get(int row, int column) const { return of[column][row]; }
#else
  ADA_INLINE F Get(int row, int column) const {
    return {of[2 * column][row], of[2 * column + 1][row]};
  }
#endif
};

// Merges a largest magnitude into *to, which need not exist where it is zero.
ADA_INLINE void MergeLargest(U largest, std::uint32_t* to) {
  const std::uint32_t bits = LargestOf(largest);
  if (bits != 0 && bits > *to) *to = bits;
}

// Where sums go: times a factor, plus a bias, rounded, and their largest magnitude.
// Loops hold `largest` themselves; Merge and TakeLargest collect what several of them found.
template <class Mode>
class SumsOut {
 public:
  // bias: of all channels, zeros after; null: none.
  ADA_INLINE SumsOut(const TensorSpan& out, float factor, const float* bias)
      : out_(out), factor_(Fill(factor)), bias_(bias) {}

  // 16 sums of channels from `channel` on, of which `lanes` exist, to value i. Returns the larger
  // of their magnitudes and `largest`, which loops keep in registers.
  ADA_INLINE U Store(std::int64_t i, int channel, int lanes, F sums, U largest) const {
    F x = sums * factor_;
    if (bias_ != nullptr) x += LoadF(bias_ + channel);
    if (lanes < 16) x = Float(Bits(x) & (U)FirstLanes(lanes));
    largest = MaxBits(largest, Magnitude(x));
    if (lanes < 16)
      Mode::StoreFirst(out_, i, lanes, x);
    else if constexpr (Mode::kRounding == ModeRounding::kCodes)
      StoreH(static_cast<std::uint16_t*>(out_.data) + i, Mode::Encode(x, Grid{}));
    else
      StoreF(static_cast<float*>(out_.data) + i, x);
    return largest;
  }
  ADA_INLINE void Merge(U largest) { largest_ = MaxBits(largest_, largest); }
  // Merges the largest magnitude since the last call into *to.
  ADA_INLINE void TakeLargest(std::uint32_t* to) {
    if (to != nullptr) MergeLargest(largest_, to);
    largest_ = U{};
  }

 private:
  const TensorSpan out_;
  const F factor_;
  const float* const bias_;
  U largest_{};
};

// The kernels; packed_convolution.h, partial_gradients.h and depthwise.h say what they do.
void PackInputForSums(const PackInputArgs&);
void PackWeightsForSums(const PackWeightsArgs&);
void ConvolveBySums(const PackedConvolutionArgs&);
void DirectGradient(const DirectGradientArgs&);
void TilesToRows(const TilesToRowsArgs&);
void DepthwiseRow(const DepthwiseRowArgs&);
void DepthwiseGradient(const DepthwiseGradientArgs&);
void WidenPixels(const DepthwiseWidenArgs&);

}  // namespace ada::backend::cpu::ADA_ISA
