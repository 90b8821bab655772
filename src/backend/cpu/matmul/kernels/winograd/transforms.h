// The transforms of matmul/plan/winograd.h, of 16 channels in the lanes of F: along one side of a
// tile, and of whole tiles.
#pragma once
#include "backend/cpu/matmul/kernels/direct/sums.h"
#include "backend/cpu/matmul/kernels/winograd_kernels.h"

namespace ada::backend::cpu::ADA_ISA {

inline constexpr int kSide = 4;  // of a tile of inputs or places

// Bt d.
ADA_INLINE void TransformInputs(F d0, F d1, F d2, F d3, F* v) {
  v[0] = d0 - d2;
  v[1] = d1 + d2;
  v[2] = d2 - d1;
  v[3] = d3 - d1;
}
// At m.
ADA_INLINE void TransformSums(F m0, F m1, F m2, F m3, F& y0, F& y1) {
  y0 = m0 + (m1 + m2);
  y1 = (m1 - m2) + m3;
}
// A dy.
ADA_INLINE void TransformGradients(F dy0, F dy1, F* z) {
  z[0] = dy0;
  z[1] = dy0 + dy1;
  z[2] = dy0 - dy1;
  z[3] = dy1;
}
// G g.
ADA_INLINE void TransformWeights(F g0, F g1, F g2, F* u) {
  const F ends = g0 + g2;
  u[0] = g0;
  u[1] = (ends + g1) * 0.5f;
  u[2] = (ends - g1) * 0.5f;
  u[3] = g2;
}
// Gt m.
ADA_INLINE void TransformProducts(F m0, F m1, F m2, F m3, F* dw) {
  const F half = (m1 + m2) * 0.5f;
  dw[0] = m0 + half;
  dw[1] = (m1 - m2) * 0.5f;
  dw[2] = half + m3;
}

// Where the values of a place lie: `step` values from one to the next.
ADA_INLINE void StorePlaces(const F* places, float* to, std::int64_t step) {
#pragma GCC unroll 16
  for (int place = 0; place < kWinogradPlaces; ++place) StoreF(to + place * step, places[place]);
}

// kRows neighboring rows of an image, 16 channels of each pixel. Rows outside of it are zeros.
// Loads 16 channels of a pixel from each row, zeros where row, column or channel lies outside.
template <class Mode, int kRows>
class PixelRows {
 public:
  // channel: the first of them.
  ADA_INLINE PixelRows(const WinogradImages& from, int image, int y, int channel)
      : pixel_bytes_(from.c * BytesOf(from.values)),
        below_(2 * from.w * pixel_bytes_),
        width_(from.w),
        channels_(from.c - channel) {
    alignas(64) static constexpr float kZeros[16] = {};
#pragma GCC unroll 4
    for (int row = 0; row < kRows; ++row) {
      const bool inside = y + row >= 0 && y + row < from.h;
      const std::int64_t i =
          image * from.image_values() + std::int64_t{y + row} * from.w * from.c + channel;
      rows_[row] = inside ? Advanced(from.values, i)
                          : TensorSpan{const_cast<float*>(kZeros), from.values.storage};
      steps_[row] = inside ? from.c : 0;
    }
  }
  // Loads column x. kWithin: x is known to be 0 or more.
  template <bool kWithin>
  ADA_INLINE void Load(int x, F (&pixels)[kRows]) const {
    const bool inside = x < width_ && (kWithin || x >= 0);
#pragma GCC unroll 4
    for (int row = 0; row < kRows; ++row) pixels[row] = inside ? At(row, x) : F{};
      // Two rows further down, which the tiles below read next.
#pragma GCC unroll 2
    for (int row = kRows - 2; row < kRows; ++row)
      __builtin_prefetch(static_cast<const std::byte*>(rows_[row].data) + x * pixel_bytes_ +
                         below_);
  }

 private:
  static ADA_INLINE std::int64_t BytesOf(const TensorSpan& values) {
    return values.storage == Storage::kF32 ? 4 : 2;
  }
  static ADA_INLINE TensorSpan Advanced(const TensorSpan& values, std::int64_t i) {
    return {static_cast<std::byte*>(values.data) + i * BytesOf(values), values.storage};
  }
  ADA_INLINE F At(int row, int x) const {
    const std::int64_t i = x * steps_[row];
    return channels_ >= 16 ? Mode::Load(rows_[row], i) : Mode::LoadFirst(rows_[row], i, channels_);
  }

  TensorSpan rows_[kRows];
  std::int64_t steps_[kRows];  // values from a column to the next
  const std::int64_t pixel_bytes_, below_;
  const int width_, channels_;
};

// The kernels; matmul/plan/winograd.h says what they do.
void WinogradInput(const WinogradInputArgs&);
void WinogradConvolve(const WinogradConvolveArgs&);
void WinogradProducts(const WinogradGradientArgs&);
bool WinogradWeights(const WinogradWeightsArgs&);
void WinogradPlain(const WinogradPlainArgs&);
void MarkNonzero(const MarkNonzeroArgs&);
void FindSparseSums(const FindSparseSumsArgs&);

}  // namespace ada::backend::cpu::ADA_ISA
