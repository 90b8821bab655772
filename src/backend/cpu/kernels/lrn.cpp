// Local response normalization, sixteen pixels at a time, in loops that the compiler turns into
// vectors: LrnSpec's formulas in double.
#include <algorithm>

#include "backend/cpu/kernels/functions.h"
#include "backend/cpu/kernels/tiles16.h"

namespace ada::backend::cpu::ADA_ISA {
namespace {

// sum += terms of channels c - before .. c + behind, in their order, for all channels of a tile.
inline __attribute__((always_inline)) void AddWindows(const double* terms, std::int64_t channels,
                                                      int before, int behind, double* sums) {
  for (std::int64_t c = 0; c < channels; ++c) {
    const std::int64_t first = std::max<std::int64_t>(0, c - before);
    const std::int64_t last = std::min<std::int64_t>(channels - 1, c + behind);
    double* sum = sums + c * kBlockRows;
    for (std::int64_t k = first; k <= last; ++k)
      for (int r = 0; r < kBlockRows; ++r) sum[r] += terms[k * kBlockRows + r];
  }
}

// A tile's x, base s of the sum of squares and power p of it, and room for more.
// Lies in the caller's work memory, 64 doubles a channel: four arrays of sixteen pixels. Lanes
// after the last pixel repeat it and are not stored.
struct LrnTile {
  explicit LrnTile(const LrnArgs& a)
      : values(a.channels * kBlockRows),
        x(a.work),
        s(x + values),
        p(s + values),
        more(p + values) {}
  inline __attribute__((always_inline)) void Load(const LrnArgs& a, const float* from, int count) {
    LoadTile(from, count, a.channels, x);
    for (std::int64_t i = 0; i < values; ++i) p[i] = x[i] * x[i], s[i] = 0;
    AddWindows(p, a.channels, a.size / 2, (a.size - 1) / 2, s);
    for (std::int64_t i = 0; i < values; ++i) {
      s[i] = a.factors.Base(s[i]);
      p[i] = a.factors.Power(s[i]);
    }
  }
  std::int64_t values;
  double *x, *s, *p, *more;
};

}  // namespace

void Lrn(const LrnArgs& given) {
  const LrnArgs a = given;
  LrnTile tile(a);
  for (std::int64_t first = 0; first < a.pixels; first += kBlockRows) {
    const int count = static_cast<int>(std::min<std::int64_t>(kBlockRows, a.pixels - first));
    tile.Load(a, a.x + first * a.channels, count);
    for (std::int64_t i = 0; i < tile.values; ++i) tile.x[i] = tile.x[i] * tile.p[i];
    StoreTile(tile.x, count, a.channels, a.out + first * a.channels);
  }
}

// The window of dx is that of y mirrored: channel k counts for c where c lies in k's window.
void LrnBackward(const LrnArgs& given) {
  const LrnArgs a = given;
  LrnTile tile(a);
  double *dy = tile.more, *terms = tile.s;
  for (std::int64_t first = 0; first < a.pixels; first += kBlockRows) {
    const int count = static_cast<int>(std::min<std::int64_t>(kBlockRows, a.pixels - first));
    tile.Load(a, a.x + first * a.channels, count);
    LoadTile(a.dy + first * a.channels, count, a.channels, dy);
    // s is replaced by dy * x * s^(-beta - 1), dy by dy * s^-beta; after that p by the sums.
    for (std::int64_t i = 0; i < tile.values; ++i) {
      dy[i] = dy[i] * tile.p[i];
      terms[i] = LrnFactors::Term(dy[i], tile.x[i], terms[i]);
      tile.p[i] = 0;
    }
    AddWindows(terms, a.channels, (a.size - 1) / 2, a.size / 2, tile.p);
    for (std::int64_t i = 0; i < tile.values; ++i)
      dy[i] = a.factors.Dx(dy[i], tile.x[i], tile.p[i]);
    StoreTile(dy, count, a.channels, a.out + first * a.channels);
  }
}

}  // namespace ada::backend::cpu::ADA_ISA
