// Pooling, and unpooling, value by value.
#pragma once
#include <cmath>
#include <cstdint>

#include "backend/cuda/kernels/tensor_span.h"
#include "backend/cuda/kernels/threads.h"
#include "number/host_device.h"

namespace ada::backend::cuda {

// --- Pooling ---

// Max and average pooling value by value: a pixel of an image gathers from its window, and one
// of the gradient from all windows that it lies in, in the order of the windows.
// The windows of one image.
// Numbers of one layer, the same in all passes.
struct PoolGrid {
  int h = 0, w = 0, c = 0, out_h = 0, out_w = 0;
  int kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1, pad_h = 0, pad_w = 0;
  bool count_padding = true, adaptive = false;  // AvgPoolSpec

  ADA_HOST_DEVICE std::int64_t in() const { return std::int64_t{h} * w * c; }
  ADA_HOST_DEVICE std::int64_t out() const { return std::int64_t{out_h} * out_w * c; }
};

// Value i of a tensor whose images are h x w x c.
struct PoolIndex {
  std::int64_t image;
  int y, x, c;
};
ADA_HOST_DEVICE inline PoolIndex IndexOf(std::int64_t i, int h, int w, int c) {
  const std::int64_t per_image = std::int64_t{h} * w * c, image = i / per_image;
  const auto rest = static_cast<std::uint32_t>(i - image * per_image);
  const std::uint32_t pixel = rest / static_cast<std::uint32_t>(c);
  const std::uint32_t row = pixel / static_cast<std::uint32_t>(w);
  return {image, static_cast<int>(row), static_cast<int>(pixel - row * static_cast<unsigned>(w)),
          static_cast<int>(rest - pixel * static_cast<unsigned>(c))};
}

// Half open.
// Rows or columns from `begin` to before `end`.
struct PoolRange {
  int begin, end;
};
// The positions that a window covers, in row order.
struct PoolPlaces {
  PoolRange rows, columns;

  struct Place {
    int row, column;
  };
  ADA_HOST_DEVICE int width() const { return columns.end - columns.begin; }
  ADA_HOST_DEVICE int Count() const { return (rows.end - rows.begin) * width(); }
  ADA_HOST_DEVICE Place At(std::int64_t number) const {
    const int down = static_cast<int>(number) / width();
    return {rows.begin + down, columns.begin + static_cast<int>(number) - down * width()};
  }
};
// Positions of window `out` that lie inside an image of `size`.
ADA_HOST_DEVICE inline PoolRange Taps(int out, int kernel, int stride, int pad, int size) {
  const int first = out * stride - pad;
  return {first < 0 ? -first : 0, size - first < kernel ? size - first : kernel};
}
// Windows that hold pixel `at`.
ADA_HOST_DEVICE inline PoolRange WindowsOver(int at, int kernel, int stride, int pad, int outs) {
  const int padded = at + pad, first = padded - kernel + 1;
  const int end = padded / stride + 1;
  return {first <= 0 ? 0 : (first + stride - 1) / stride, end < outs ? end : outs};
}

// y = the first largest value in row order; a NaN beats everything (PyTorch's rule). For all values
// of y.
// Body of ForEach over the values of y. Values are moved as they are: nothing is rounded.
// The last of several NaNs is the one that gets the gradient.
struct MaxPoolForward {
  ADA_HOST_DEVICE void operator()(std::int64_t i) const {
    const PoolIndex at = IndexOf(i, grid.out_h, grid.out_w, grid.c);
    const PoolRange rows = Taps(at.y, grid.kernel_h, grid.stride_h, grid.pad_h, grid.h);
    const PoolRange columns = Taps(at.x, grid.kernel_w, grid.stride_w, grid.pad_w, grid.w);
    const int top = at.y * grid.stride_h - grid.pad_h, left = at.x * grid.stride_w - grid.pad_w;
    const std::int64_t image = at.image * grid.in() + at.c;
    float best = -INFINITY;
    int where = rows.begin * grid.kernel_w + columns.begin;
    for (int r = rows.begin; r < rows.end; ++r)
      for (int k = columns.begin; k < columns.end; ++k) {
        const std::int64_t pixel = std::int64_t{top + r} * grid.w + left + k;
        const float v = Load(x, image + pixel * grid.c);
        if (!(v > best) && v == v) continue;
        best = v, where = r * grid.kernel_w + k;
      }
    StoreExact(y, i, best);
    if (index != nullptr) index[i] = static_cast<std::uint16_t>(where);
  }

  PoolGrid grid;
  TensorSpan x, y;
  std::uint16_t* index = nullptr;  // position in the window; null: evaluation
};

// MaxPoolForward where values are of 16 bits and 8 divides the channels: eight channels of a
// window. For all eights of y, of which there are fewer than 2^32.
template <StorageType kStorageType>
struct MaxPoolVec8 {
  ADA_HOST_DEVICE void operator()(std::int64_t i) const {
    const auto vec8 = static_cast<std::uint32_t>(grid.c / 8);
    const auto out_w = static_cast<std::uint32_t>(grid.out_w),
               out_h = static_cast<std::uint32_t>(grid.out_h);
    const std::uint32_t pixel = static_cast<std::uint32_t>(i) / vec8, line = pixel / out_w,
                        image = line / out_h;
    const auto across = static_cast<int>(pixel - line * out_w),
               down = static_cast<int>(line - image * out_h);
    const PoolPlaces taps{Taps(down, grid.kernel_h, grid.stride_h, grid.pad_h, grid.h),
                          Taps(across, grid.kernel_w, grid.stride_w, grid.pad_w, grid.w)};
    const int top = down * grid.stride_h - grid.pad_h, left = across * grid.stride_w - grid.pad_w;
    const std::int64_t first =
        image * grid.in() + (static_cast<std::uint32_t>(i) - pixel * vec8) * 8;
    const auto start =
        static_cast<std::uint32_t>(taps.rows.begin * grid.kernel_w + taps.columns.begin);
    Vec8 best;
    Vec8Codes codes{}, where;
    for (float& of : best.of) of = -INFINITY;
    for (std::uint32_t& pair : where.pair) pair = start | start << 16;
    for (std::uint32_t& pair : codes.pair) pair = kLowest;
    ForEvery<9>(
        0, taps.Count(), 1,
        [&](std::int64_t tap) {
          const PoolPlaces::Place place = taps.At(tap);
          const std::int64_t pixel = std::int64_t{top + place.row} * grid.w + left + place.column;
          return LoadVec8(x, first + pixel * grid.c);
        },
        [&](std::int64_t tap, const Vec8Codes& loaded) {
          const PoolPlaces::Place place = taps.At(tap);
          Take(loaded, static_cast<std::uint32_t>(place.row * grid.kernel_w + place.column), best,
               codes, where);
        });
    StoreVec8(y, 8 * i, codes);
    if (index != nullptr) reinterpret_cast<Vec8Codes*>(index)[i] = where;
  }

  PoolGrid grid;
  TensorSpan x, y;
  std::uint16_t* index = nullptr;  // position in the window; null: evaluation

 private:
  // -inf, twice.
  static constexpr std::uint32_t kLowest =
      kStorageType == StorageType::kF16 ? 0xfc00fc00u : 0xff80ff80u;
  // What is larger, or NaN, replaces value, code and place of its channel.
  static ADA_HOST_DEVICE void Take(const Vec8Codes& loaded, std::uint32_t tap, Vec8& best,
                                   Vec8Codes& codes, Vec8Codes& where) {
    const Vec8 value = Widened<kStorageType>(loaded);
    for (int k = 0; k < 8; ++k) {
      if (!(value.of[k] > best.of[k]) && value.of[k] == value.of[k]) continue;
      const std::uint32_t half = k % 2 == 0 ? 0xffffu : 0xffff0000u;
      best.of[k] = value.of[k];
      codes.pair[k / 2] = (codes.pair[k / 2] & ~half) | (loaded.pair[k / 2] & half);
      where.pair[k / 2] = (where.pair[k / 2] & ~half) | ((tap | tap << 16) & half);
    }
  }
};

// dx = the sum of the dy whose maximum lay here. For all values of dx. kKernel, kStride: of windows
// that are as high as wide, where they are known when the kernel is compiled; else 0.
// Gathering from the windows over a pixel needs no atomic addition, whose order would be another in
// each run.
template <int kKernel, int kStride>
struct MaxPoolGradient {
  ADA_HOST_DEVICE float operator()(std::int64_t i) const {
    const PoolIndex at = IndexOf(i, grid.h, grid.w, grid.c);
    const PoolRange rows = WindowsOver(at.y, grid.kernel_h, grid.stride_h, grid.pad_h, grid.out_h);
    const PoolRange columns =
        WindowsOver(at.x, grid.kernel_w, grid.stride_w, grid.pad_w, grid.out_w);
    const std::int64_t image = at.image * grid.out() + at.c;
    float sum = 0;
    for (int r = rows.begin; r < rows.end; ++r)
      for (int k = columns.begin; k < columns.end; ++k) {
        const int y = at.y - (r * grid.stride_h - grid.pad_h);
        const int x = at.x - (k * grid.stride_w - grid.pad_w);
        const std::int64_t from = image + (std::int64_t{r} * grid.out_w + k) * grid.c;
        if (index[from] == y * grid.kernel_w + x) sum = sum + Load(dy, from);
      }
    return sum;
  }

  // By eights (round_values.h), in indices of 32 bits.
  struct Held {};
  struct Loaded {
    std::uint32_t at;  // of dx
  };
  bool IsPlain(Storage storage) const {
    return has_vec8 && dy.storage == storage && HasVec8(dy) && IsOnSixteen(index);
  }
  ADA_HOST_DEVICE Held Hold(std::int64_t) const { return {}; }
  ADA_HOST_DEVICE Loaded LoadVec8At(std::int64_t i) const {
    return {static_cast<std::uint32_t>(i)};
  }
  template <StorageType kStorageType>
  ADA_HOST_DEVICE Vec8 OfVec8(const Held&, const Loaded& loaded) const {
    const auto channels = static_cast<std::uint32_t>(grid.c);
    const std::uint32_t pixel = loaded.at / channels, c = loaded.at - pixel * channels;
    const std::uint32_t line = pixel / static_cast<std::uint32_t>(grid.w);
    const std::uint32_t image = line / static_cast<std::uint32_t>(grid.h);
    const int x = static_cast<int>(pixel - line * static_cast<std::uint32_t>(grid.w));
    const int y = static_cast<int>(line - image * static_cast<std::uint32_t>(grid.h));
    const PoolRange rows =
        WindowsOver(y, KernelOf(grid.kernel_h), StrideOf(grid.stride_h), grid.pad_h, grid.out_h);
    const PoolRange columns =
        WindowsOver(x, KernelOf(grid.kernel_w), StrideOf(grid.stride_w), grid.pad_w, grid.out_w);
    Vec8 sum{};
    ForWindows(rows, [&](int r) {
      const int down = y + grid.pad_h - r * StrideOf(grid.stride_h);
      const std::uint32_t first = image * static_cast<std::uint32_t>(grid.out_h);
      ForWindows(columns, [&](int k) {
        const int across = x + grid.pad_w - k * StrideOf(grid.stride_w);
        const std::uint32_t window =
            (first + static_cast<std::uint32_t>(r)) * static_cast<std::uint32_t>(grid.out_w) +
            static_cast<std::uint32_t>(k);
        AddVec8<kStorageType>(window * channels + c, down * KernelOf(grid.kernel_w) + across, sum);
      });
    });
    return sum;
  }
  static ADA_HOST_DEVICE int KernelOf(int kernel) { return kKernel > 0 ? kKernel : kernel; }
  static ADA_HOST_DEVICE int StrideOf(int stride) { return kStride > 0 ? kStride : stride; }
  // In the order of the windows; where their number is known, without a loop.
  template <class Each>
  static ADA_HOST_DEVICE void ForWindows(const PoolRange& range, Each&& each) {
    if constexpr (kKernel > 0) {
      for (int k = 0; k < (kKernel + kStride - 1) / kStride; ++k)
        if (range.begin + k < range.end) each(range.begin + k);
    } else {
      for (int k = range.begin; k < range.end; ++k) each(k);
    }
  }
  // A sum that begins with 0 is never -0: adding 0 leaves it.
  template <StorageType kStorageType>
  ADA_HOST_DEVICE void AddVec8(std::uint32_t from, int tap, Vec8& sum) const {
    const Vec8Codes taps = reinterpret_cast<const Vec8Codes*>(index)[from / 8];
    const Vec8 g = Widened<kStorageType>(LoadVec8(dy, from));
    const auto wanted = static_cast<std::uint32_t>(tap);
    for (int k = 0; k < 4; ++k) {
      sum.of[2 * k] += (taps.pair[k] & 0xffffu) == wanted ? g.of[2 * k] : 0.0f;
      sum.of[2 * k + 1] += taps.pair[k] >> 16 == wanted ? g.of[2 * k + 1] : 0.0f;
    }
  }

  PoolGrid grid;
  TensorSpan dy;
  const std::uint16_t* index = nullptr;
  bool has_vec8 = false;  // 8 divides the channels, and indices fit into 32 bits
};

// One side of the windows of an average pooling.
// Rows and columns are alike: each side of a window is computed by itself.
struct MeanSide {
  int kernel, stride, pad, size, outs;
  bool count_padding, adaptive;

  ADA_HOST_DEVICE int Begin(int out) const {
    return adaptive ? static_cast<int>(std::int64_t{out} * size / outs) : out * stride - pad;
  }
  ADA_HOST_DEVICE int Extent(int out) const {
    if (!adaptive) return kernel;
    return static_cast<int>((std::int64_t{out + 1} * size + outs - 1) / outs) - Begin(out);
  }
  // Pixels of window `out`.
  ADA_HOST_DEVICE PoolRange Pixels(int out) const {
    const int begin = Begin(out), end = begin + Extent(out);
    return {begin < 0 ? 0 : begin, end < size ? end : size};
  }
  // How many of its positions count.
  ADA_HOST_DEVICE int Counted(int out) const {
    const PoolRange pixels = Pixels(out);
    const int extent = Extent(out), reach = size + pad - Begin(out);
    return !count_padding ? pixels.end - pixels.begin : extent < reach ? extent : reach;
  }
  // Windows that hold pixel `at`; adaptive ones may overlap.
  ADA_HOST_DEVICE PoolRange Over(int at) const {
    if (!adaptive) return WindowsOver(at, kernel, stride, pad, outs);
    return {static_cast<int>(std::int64_t{at} * outs / size),
            static_cast<int>((std::int64_t{at + 1} * outs + size - 1) / size)};
  }
};
ADA_HOST_DEVICE inline MeanSide RowsOf(const PoolGrid& g) {
  return {g.kernel_h, g.stride_h, g.pad_h, g.h, g.out_h, g.count_padding, g.adaptive};
}
ADA_HOST_DEVICE inline MeanSide ColumnsOf(const PoolGrid& g) {
  return {g.kernel_w, g.stride_w, g.pad_w, g.w, g.out_w, g.count_padding, g.adaptive};
}

// y = the mean over the window. For all values of y.
struct AvgPoolMean {
  ADA_HOST_DEVICE float operator()(std::int64_t i) const {
    const PoolIndex at = IndexOf(i, grid.out_h, grid.out_w, grid.c);
    const MeanSide down = RowsOf(grid), across = ColumnsOf(grid);
    const PoolPlaces pixels{down.Pixels(at.y), across.Pixels(at.x)};
    const std::int64_t image = at.image * grid.in() + at.c;
    float sum = 0;
    ForEvery<16>(
        0, pixels.Count(), 1,
        [&](std::int64_t number) {
          const PoolPlaces::Place place = pixels.At(number);
          return Load(x, image + (std::int64_t{place.row} * grid.w + place.column) * grid.c);
        },
        [&](std::int64_t, float value) { sum = sum + value; });
    return sum / static_cast<float>(down.Counted(at.y) * across.Counted(at.x));
  }

  PoolGrid grid;
  TensorSpan x;
};

// dx = the sum of the shares of all windows. For all values of dx.
struct AvgPoolGradient {
  ADA_HOST_DEVICE float operator()(std::int64_t i) const {
    float sum = 0;
    ForShares(i, [&](std::int64_t from, float share) { sum = sum + Load(dy, from) / share; });
    return sum;
  }
  // Four channels of a pixel.
  ADA_HOST_DEVICE Vec4 OfVec4(std::int64_t i) const {
    Vec4 sums = {};
    if (grid.c % 4 != 0) {
      for (int k = 0; k < 4; ++k) sums.of[k] = (*this)(i + k);
      return sums;
    }
    ForShares(i, [&](std::int64_t from, float share) {
      const Vec4 values = LoadVec4(dy, from);
      for (int k = 0; k < 4; ++k) sums.of[k] = sums.of[k] + values.of[k] / share;
    });
    return sums;
  }
  // use(j, n) for the values j of dy that are means over value i and n - 1 others.
  template <class Use>
  ADA_HOST_DEVICE void ForShares(std::int64_t i, Use&& use) const {
    const PoolIndex at = IndexOf(i, grid.h, grid.w, grid.c);
    const MeanSide down = RowsOf(grid), across = ColumnsOf(grid);
    const PoolRange rows = down.Over(at.y), columns = across.Over(at.x);
    const std::int64_t image = at.image * grid.out() + at.c;
    for (int r = rows.begin; r < rows.end; ++r)
      for (int k = columns.begin; k < columns.end; ++k)
        use(image + (std::int64_t{r} * grid.out_w + k) * grid.c,
            static_cast<float>(down.Counted(r) * across.Counted(k)));
  }

  PoolGrid grid;
  TensorSpan dy;
};

// --- Unpooling ---

// Unpooling value by value: each pixel lies in one window at most, and a pooled value goes to one
// pixel.
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
