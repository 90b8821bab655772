// Values of enlarged images: means of four pixels (interpolation.h), and channels as pixels.
#pragma once
#include <cstdint>

#include "backend/cuda/kernels/elementwise.h"
#include "backend/interpolation.h"

namespace ada::backend::cuda {

// What both ways of a bilinear upsampling know.
struct BilinearGrid {
  ImageShape x, y;
  InterpolatedAxis rows, columns;
};

struct BilinearValue {
  ADA_HOST_DEVICE float operator()(std::int64_t i) const {
    const ImageIndex at = IndexOf(grid.y, i);
    const BetweenPixels v = grid.rows.At(at.h), h = grid.columns.At(at.w);
    const float top = Row(at, v.at, h);
    return v.above == 0 ? top : Between(v, top, Row(at, v.at + 1, h));
  }
  ADA_HOST_DEVICE float Row(const ImageIndex& at, int row, const BetweenPixels& h) const {
    const float left = Load(from, OffsetOf(grid.x, {at.image, row, h.at, at.c}));
    if (h.above == 0) return left;
    return Between(h, left, Load(from, OffsetOf(grid.x, {at.image, row, h.at + 1, at.c})));
  }

  TensorSpan from;
  BilinearGrid grid;
};

// The sum over the places that a pixel has a part in, row by row.
struct BilinearGradient {
  ADA_HOST_DEVICE float operator()(std::int64_t i) const {
    const ImageIndex at = IndexOf(grid.x, i);
    const auto bottom = static_cast<int>(grid.rows.FirstFrom(at.h + 2));
    const auto left = static_cast<int>(grid.columns.FirstFrom(at.w)),
               right = static_cast<int>(grid.columns.FirstFrom(at.w + 2));
    float sum = 0;
    for (auto h = static_cast<int>(grid.rows.FirstFrom(at.h)); h < bottom; ++h) {
      const float down = grid.rows.Share(at.h, h);
      for (int w = left; w < right; ++w) {
        const float share = down * grid.columns.Share(at.w, w);
        if (share != 0) sum = sum + Load(dy, OffsetOf(grid.y, {at.image, h, w, at.c})) * share;
      }
    }
    return sum;
  }

  TensorSpan dy;
  BilinearGrid grid;
};

// Value i of y in x, or with kBack of x in y, where blocks of scale^2 channels of x are blocks of
// pixels of y.
template <bool kBack>
struct ShuffledValue {
  ADA_HOST_DEVICE float operator()(std::int64_t i) const {
    ImageIndex at = IndexOf(kBack ? x : y, i);
    if (kBack) {
      const int part = at.c % (scale * scale);
      at = {at.image, at.h * scale + part / scale, at.w * scale + part % scale,
            at.c / (scale * scale)};
      return Load(from, OffsetOf(y, at));
    }
    const int part = at.h % scale * scale + at.w % scale;
    at = {at.image, at.h / scale, at.w / scale, at.c * scale * scale + part};
    return Load(from, OffsetOf(x, at));
  }

  TensorSpan from;
  ImageShape x, y;
  int scale;
};

}  // namespace ada::backend::cuda
