// Unpooling on the images of one block, channels as the vector dimension. Values are moved as they
// are.
#include <cstring>

#include "backend/cpu/kernels/columns.h"
#include "backend/cpu/kernels/functions.h"

namespace ada::backend::cpu::ADA_ISA {
namespace {

// A window: the first values of its pixel in `small` and `positions`, and where it lies in `large`.
// Windows do not overlap (InferUnpool), so that each value of `large` is written once.
struct PooledWindow {
  std::int64_t small = 0, position = 0, top = 0, left = 0, image = 0;
};
// visit(window) for those of both `small` and `positions`.
template <class Visit>
ADA_INLINE void ForPooled(const UnpoolArgs& a, Visit&& visit) {
  const std::int64_t rows = std::min(a.small_h, a.pooled_h);
  const std::int64_t columns = std::min(a.small_w, a.pooled_w);
  PooledWindow w;
  for (w.image = 0; w.image < a.images; ++w.image)
    for (std::int64_t y = 0; y < rows; ++y)
      for (std::int64_t x = 0; x < columns; ++x) {
        w.small = ((w.image * a.small_h + y) * a.small_w + x) * a.c;
        w.position = ((w.image * a.pooled_h + y) * a.pooled_w + x) * a.c;
        w.top = y * a.stride_h - a.pad_h, w.left = x * a.stride_w - a.pad_w;
        visit(w);
      }
}
// tap(position in the window, first value of the pixel in `large`) for its pixels inside the image.
// Two by two of them, the common case, without a loop.
template <class Tap>
ADA_INLINE void ForPixels(const UnpoolArgs& a, const PooledWindow& w, Tap&& tap) {
  const auto at = [&](std::int64_t y, std::int64_t x) __attribute__((always_inline)) {
    tap(static_cast<int>(y * a.kernel_w + x),
        ((w.image * a.large_h + w.top + y) * a.large_w + w.left + x) * a.c);
  };
  const std::int64_t y0 = std::max<std::int64_t>(0, -w.top);
  const std::int64_t y1 = std::min<std::int64_t>(a.kernel_h, a.large_h - w.top);
  const std::int64_t x0 = std::max<std::int64_t>(0, -w.left);
  const std::int64_t x1 = std::min<std::int64_t>(a.kernel_w, a.large_w - w.left);
  if (y1 - y0 == 2 && x1 - x0 == 2) {
    at(y0, x0), at(y0, x0 + 1), at(y0 + 1, x0), at(y0 + 1, x0 + 1);
    return;
  }
  for (std::int64_t y = y0; y < y1; ++y)
    for (std::int64_t x = x0; x < x1; ++x) at(y, x);
}
void Clear(const TensorSpan& span, std::int64_t values) {
  std::memset(span.data, 0, static_cast<std::size_t>(values) * BytesOf(span.storage));
}
// Whether every pixel of `large` lies in a window.
// Then storing zeros in each window clears all of it.
bool FillsLarge(const UnpoolArgs& a) {
  const std::int64_t rows = std::min(a.small_h, a.pooled_h);
  const std::int64_t columns = std::min(a.small_w, a.pooled_w);
  return a.stride_h <= a.kernel_h && a.stride_w <= a.kernel_w &&
         (rows - 1) * a.stride_h + a.kernel_h - a.pad_h >= a.large_h &&
         (columns - 1) * a.stride_w + a.kernel_w - a.pad_w >= a.large_w;
}

}  // namespace

// Only positions inside the smaller of the two grids are visited: values of `large` elsewhere stay
// zero.
void MaxUnpool(const UnpoolArgs& a) {
  if (!FillsLarge(a)) Clear(a.large, a.images * a.large_h * a.large_w * a.c);
  Dispatch({a.small, a.large}, [&](auto mode) {
    using Mode = decltype(mode);
    ForPooled(a, [&](const PooledWindow& w) {
      ForChannels(
          a.c, [&](std::int64_t c, int lanes, auto tail) __attribute__((always_inline)) {
            constexpr bool kTail = decltype(tail)::value;
            const F v = LoadAt<Mode, kTail>(a.small, w.small + c, lanes);
            const I where = (I)ToUnsigned(LoadFirstH(a.positions + w.position + c, lanes));
            ForPixels(
                a, w, [&](int position, std::int64_t pixel) __attribute__((always_inline)) {
                  StoreAt<Mode, kTail>(a.large, pixel + c, lanes,
                                       Select(where == position, v, F{}));
                });
          });
    });
  });
}

// Where x was larger than what the pool gave, its gradient there is zero.
void MaxUnpoolBackward(const UnpoolArgs& a) {
  if (a.small_h > a.pooled_h || a.small_w > a.pooled_w)
    Clear(a.small, a.images * a.small_h * a.small_w * a.c);
  Dispatch({a.small, a.large}, [&](auto mode) {
    using Mode = decltype(mode);
    ForPooled(a, [&](const PooledWindow& w) {
      ForChannels(
          a.c, [&](std::int64_t c, int lanes, auto tail) __attribute__((always_inline)) {
            constexpr bool kTail = decltype(tail)::value;
            const I where = (I)ToUnsigned(LoadFirstH(a.positions + w.position + c, lanes));
            F v{};
            ForPixels(
                a, w, [&](int position, std::int64_t pixel) __attribute__((always_inline)) {
                  const F g = LoadAt<Mode, kTail>(a.large, pixel + c, lanes);
                  v = Select(where == position, g, v);
                });
            StoreAt<Mode, kTail>(a.small, w.small + c, lanes, v);
          });
    });
  });
}

}  // namespace ada::backend::cpu::ADA_ISA
