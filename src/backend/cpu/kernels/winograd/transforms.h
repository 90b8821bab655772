// The transforms of products/winograd.h, of 16 channels in the lanes of F: along one side of a
// tile, and of whole tiles.
#pragma once
#include "backend/cpu/kernels/direct/sums.h"
#include "backend/cpu/products/winograd.h"

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

// The pixels that tiles read: 16 channels of a pixel, or zeros where it lies outside of its image.
template <class Mode>
struct Pixels {
  const WinogradImages& from;
  std::int64_t image;  // its first value, of these channels
  int channels;        // that there are of the 16

  ADA_INLINE F At(int y, int x) const {
    if (y < 0 || y >= from.h || x < 0 || x >= from.w) return F{};
    const std::int64_t i = image + (std::int64_t{y} * from.w + x) * from.c;
    return channels >= 16 ? Mode::Load(from.values, i) : Mode::LoadFirst(from.values, i, channels);
  }
};

// body(Mode) for the storage of values that are read or stored as their codes.
template <class Body>
ADA_INLINE void ForStorage(Storage storage, Body&& body) {
  switch (storage) {
    case Storage::kF16:
      return body(ModeF16{});
    case Storage::kBF16:
      return body(ModeBF16{});
    default:
      return body(ModeF32{});
  }
}

// The kernels; products/winograd.h says what they do.
void WinogradInput(const WinogradInputArgs&);
void WinogradConvolve(const WinogradConvolveArgs&);
void WinogradProducts(const WinogradGradientArgs&);
void WinogradWeights(const WinogradWeightsArgs&);
void WinogradPlain(const WinogradPlainArgs&);

}  // namespace ada::backend::cpu::ADA_ISA
