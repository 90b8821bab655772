// Unpooling value by value: each pixel lies in one window at most, and a pooled value goes to one
// pixel.
#pragma once
#include <cstdint>

#include "backend/cuda/kernels/pool.h"

namespace ada::backend::cuda {

// How the images of one tensor lie.
struct UnpoolImage {
  int h, w, c;
  ADA_HOST_DEVICE PoolIndex Of(std::int64_t i) const { return IndexOf(i, h, w, c); }
  ADA_HOST_DEVICE std::int64_t Offset(std::int64_t image, int y, int x, int channel) const {
    return ((image * h + y) * w + x) * c + channel;
  }
};
struct UnpoolGrid {
  UnpoolImage small, pooled, large;
  int kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w;

  // Whether both the pooled values and their positions hold this window.
  ADA_HOST_DEVICE bool Holds(int y, int x) const {
    return y < small.h && y < pooled.h && x < small.w && x < pooled.w;
  }
};

// y = x where its maximum was found, else 0. For all values of y.
struct MaxUnpoolValue {
  ADA_HOST_DEVICE float operator()(std::int64_t i) const {
    const PoolIndex at = grid.large.Of(i);
    const int y = (at.y + grid.pad_h) / grid.stride_h, x = (at.x + grid.pad_w) / grid.stride_w;
    const int row = at.y + grid.pad_h - y * grid.stride_h;
    const int column = at.x + grid.pad_w - x * grid.stride_w;
    // A pixel between windows, where strides are larger than kernels, is 0; so is one of a window
    // that either input lacks.
    if (row >= grid.kernel_h || column >= grid.kernel_w || !grid.Holds(y, x)) return 0;
    const int position = positions[grid.pooled.Offset(at.image, y, x, at.c)];
    if (position != row * grid.kernel_w + column) return 0;
    return Load(from, grid.small.Offset(at.image, y, x, at.c));
  }

  UnpoolGrid grid;
  TensorSpan from;
  const std::uint16_t* positions;
};

// dx = dy there. For all values of dx.
struct MaxUnpoolGradient {
  ADA_HOST_DEVICE float operator()(std::int64_t i) const {
    const PoolIndex at = grid.small.Of(i);
    if (!grid.Holds(at.y, at.x)) return 0;
    const int position = positions[grid.pooled.Offset(at.image, at.y, at.x, at.c)];
    const int row = position / grid.kernel_w, column = position - row * grid.kernel_w;
    const int y = at.y * grid.stride_h - grid.pad_h + row;
    const int x = at.x * grid.stride_w - grid.pad_w + column;
    // The unpooled image may be smaller than the pool's input was.
    if (y >= grid.large.h || x >= grid.large.w) return 0;
    return Load(dy, grid.large.Offset(at.image, y, x, at.c));
  }

  UnpoolGrid grid;
  TensorSpan dy;
  const std::uint16_t* positions;
};

}  // namespace ada::backend::cuda
