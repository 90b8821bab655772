// Max and average pooling on the images of one block, channels as the vector dimension.
#include <limits>

#include "backend/cpu/kernels/columns.h"
#include "backend/cpu/kernels/functions.h"

namespace ada::backend::cpu::ADA_ISA {
namespace {

// An output pixel and the part of its window that lies inside the image.
struct Window {
  std::int64_t out = 0;     // its number among the block's output pixels
  std::int64_t corner = 0;  // pixel of the image at the window's first position (may lie outside)
  std::int64_t y0 = 0, y1 = 0, x0 = 0, x1 = 0;  // rows and columns of the window
  std::int64_t width = 1;                       // of the whole window
  float area = 1;                               // by which a mean divides
  std::int64_t first() const { return y0 * width + x0; }
};
// Where a window begins along one side, and how far it goes.
struct Side {
  std::int64_t begin, size;
};
Side SideOf(const PoolArgs& a, std::int64_t out, std::int64_t outs, std::int64_t size, int kernel,
            int stride, int pad) {
  if (!a.adaptive) return {out * stride - pad, kernel};
  const std::int64_t begin = out * size / outs;
  return {begin, ((out + 1) * size + outs - 1) / outs - begin};
}
// How many of its positions count: those after the padding do not.
std::int64_t Counted(const PoolArgs& a, const Side& side, std::int64_t size, int pad,
                     std::int64_t inside) {
  return a.count_padding ? std::min(side.size, size + pad - side.begin) : inside;
}
// visit(window) for all of an image's output pixels.
template <class Visit>
ADA_INLINE void ForWindows(const PoolArgs& a, std::int64_t image, Visit&& visit) {
  Window window;
  window.out = image * a.out_h * a.out_w;
  for (std::int64_t y = 0; y < a.out_h; ++y) {
    const Side rows = SideOf(a, y, a.out_h, a.h, a.kernel_h, a.stride_h, a.pad_h);
    const std::int64_t top = rows.begin;
    window.y0 = std::max<std::int64_t>(0, -top);
    window.y1 = std::min<std::int64_t>(rows.size, a.h - top);
    for (std::int64_t x = 0; x < a.out_w; ++x, ++window.out) {
      const Side columns = SideOf(a, x, a.out_w, a.w, a.kernel_w, a.stride_w, a.pad_w);
      const std::int64_t left = columns.begin;
      window.x0 = std::max<std::int64_t>(0, -left);
      window.x1 = std::min<std::int64_t>(columns.size, a.w - left);
      window.width = columns.size;
      window.area = static_cast<float>(Counted(a, rows, a.h, a.pad_h, window.y1 - window.y0) *
                                       Counted(a, columns, a.w, a.pad_w, window.x1 - window.x0));
      window.corner = top * a.w + left;
      visit(window);
    }
  }
}
// tap(position in the window, pixel) for the window's pixels inside the image, row by row. Two by
// two of them, the common case, without a loop.
template <class Tap>
ADA_INLINE void ForTaps(const PoolArgs& a, const Window& w, Tap&& tap) {
  const auto at = [&](std::int64_t y, std::int64_t x) __attribute__((always_inline)) {
    tap(static_cast<int>(y * w.width + x), w.corner + y * a.w + x);
  };
  if (w.y1 - w.y0 == 2 && w.x1 - w.x0 == 2) {
    at(w.y0, w.x0), at(w.y0, w.x0 + 1);
    at(w.y0 + 1, w.x0), at(w.y0 + 1, w.x0 + 1);
    return;
  }
  for (std::int64_t y = w.y0; y < w.y1; ++y)
    for (std::int64_t x = w.x0; x < w.x1; ++x) at(y, x);
}
TensorSpan Image(const PoolArgs& a, std::int64_t image) {
  return {static_cast<std::byte*>(a.x.data) +
              image * a.h * a.w * a.c * static_cast<std::int64_t>(BytesOf(a.x.storage)),
          a.x.storage};
}
// The image's gradient, gathered in `work`, is rounded to dx.
// Gradients of one image are summed in fp32 first: where windows overlap a value of dx is a sum,
// which is rounded once.
template <class Mode, bool kCount, Moments kMoments>
void StoreImage(const PoolArgs& a, std::int64_t image, Counter<Mode, kCount, kMoments>& counter) {
  const TensorSpan work{a.work, Storage::kF32};
  const std::int64_t first = image * a.h * a.w * a.c;
  ForValues(
      a.h * a.w * a.c, counter,
      [&](std::int64_t i, int lanes, auto tail, auto& loop) __attribute__((always_inline)) {
        constexpr bool kTail = decltype(tail)::value;
        const F x = LoadAt<ModeF32, kTail>(work, i, lanes);
        loop.template RoundInto<kTail>(a.x, first + i, lanes, x);
      });
}
// No pixel lies in two windows; every pixel lies in one.
// Adaptive windows of neighbors may share a row or column.
bool Apart(const PoolArgs& a) {
  return !a.adaptive && a.stride_h >= a.kernel_h && a.stride_w >= a.kernel_w;
}
// Then nothing of `work` has to be cleared. Windows begin in the padding, so that it is enough that
// none leaves a gap and the last one reaches the image's end.
bool Covered(const PoolArgs& a) {
  return a.stride_h <= a.kernel_h && a.stride_w <= a.kernel_w &&
         (a.out_h - 1) * a.stride_h + a.kernel_h >= a.h + a.pad_h &&
         (a.out_w - 1) * a.stride_w + a.kernel_w >= a.w + a.pad_w;
}
// Per image: clear `work`, let gather(mode, apart, image) fill it, round it to dx. apart: every
// value that is written is written once.
template <class Gather>
void Backward(const PoolArgs& a, Gather&& gather) {
  const bool apart = Apart(a), covered = apart && Covered(a);
  Dispatch({a.x, a.y}, {&a.rounding}, [&](auto mode) {
    using Mode = decltype(mode);
    DispatchStats<Mode>(a.rounding, [&](auto count, auto moments) {
      Counter<Mode, count(), moments()> counter(a.rounding);
      // Images one by one: `work` holds one, and stays in the cache until it is rounded.
      for (std::int64_t image = 0; image < a.images; ++image) {
        if (!covered) std::fill_n(a.work, a.h * a.w * a.c, 0.0f);
        if (apart)
          gather(mode, std::true_type{}, image);
        else
          gather(mode, std::false_type{}, image);
        StoreImage<Mode>(a, image, counter);
      }
      counter.Finish(a.images * a.h * a.w * a.c);
    });
  });
}

}  // namespace

// The first largest value in row order wins, a NaN beats everything (PyTorch's rule).
void MaxPool(const PoolArgs& a) {
  Dispatch({a.x, a.y}, [&](auto mode) {
    using Mode = decltype(mode);
    for (std::int64_t image = 0; image < a.images; ++image) {
      const TensorSpan x = Image(a, image), y = a.y;
      ForWindows(a, image, [&](const Window& window) {
        ForChannels(
            a.c, [&](std::int64_t c, int lanes, auto tail) __attribute__((always_inline)) {
              constexpr bool kTail = decltype(tail)::value;
              F best = Fill(-std::numeric_limits<float>::infinity());
              I where = I{} + static_cast<int>(window.first());
              ForTaps(
                  a, window, [&](int position, std::int64_t pixel) __attribute__((always_inline)) {
                    const F v = LoadAt<Mode, kTail>(x, pixel * a.c + c, lanes);
                    const I better = (v > best) | (v != v);
                    best = Select(better, v, best);
                    where = Select(better, I{} + position, where);
                  });
              const std::int64_t i = window.out * a.c + c;
              StoreAt<Mode, kTail>(y, i, lanes, best);
              if (a.index != nullptr) StoreFirstH(a.index + i, lanes, ToCodes((U)where));
            });
      });
    }
  });
}

void MaxPoolBackward(const PoolArgs& a) {
  Backward(a, [&](auto mode, auto apart, std::int64_t image) {
    using Mode = decltype(mode);
    const TensorSpan work{a.work, Storage::kF32};
    ForWindows(a, image, [&](const Window& window) {
      ForChannels(
          a.c, [&](std::int64_t c, int lanes, auto tail) __attribute__((always_inline)) {
            constexpr bool kTail = decltype(tail)::value;
            const std::int64_t i = window.out * a.c + c;
            const F g = LoadAt<Mode, kTail>(a.y, i, lanes);
            // The position within the window, not the image, determines where dy goes.
            const I where = (I)ToUnsigned(LoadFirstH(a.index + i, lanes));
            ForTaps(
                a, window, [&](int position, std::int64_t pixel) __attribute__((always_inline)) {
                  const std::int64_t to = pixel * a.c + c;
                  const I mine = where == position;
                  const F old = apart() ? F{} : LoadAt<ModeF32, kTail>(work, to, lanes);
                  StoreAt<ModeF32, kTail>(work, to, lanes, Select(mine, old + g, old));
                });
          });
    });
  });
}

// The sum is taken in fp32 from the first position on, divided once.
void AvgPool(const PoolArgs& a) {
  Dispatch({a.x, a.y}, {&a.rounding}, [&](auto mode) {
    using Mode = decltype(mode);
    DispatchStats<Mode>(a.rounding, [&](auto count, auto moments) {
      Counter<Mode, count(), moments()> counter(a.rounding);
      for (std::int64_t image = 0; image < a.images; ++image) {
        const TensorSpan x = Image(a, image);
        ForWindows(a, image, [&](const Window& window) {
          const F area = Fill(window.area);
          ForValues(
              a.c, counter,
              [&](std::int64_t c, int lanes, auto tail, auto& loop) __attribute__((always_inline)) {
                constexpr bool kTail = decltype(tail)::value;
                F sum{};
                ForTaps(
                    a, window, [&](int, std::int64_t pixel) __attribute__((always_inline)) {
                      sum += LoadAt<Mode, kTail>(x, pixel * a.c + c, lanes);
                    });
                const std::int64_t i = window.out * a.c + c;
                loop.template RoundInto<kTail>(a.y, i, lanes, sum / area);
              });
        });
      }
      counter.Finish(a.images * a.out_h * a.out_w * a.c);
    });
  });
}

void AvgPoolBackward(const PoolArgs& a) {
  Backward(a, [&](auto mode, auto apart, std::int64_t image) {
    using Mode = decltype(mode);
    const TensorSpan work{a.work, Storage::kF32};
    ForWindows(a, image, [&](const Window& window) {
      const F area = Fill(window.area);
      ForChannels(
          a.c, [&](std::int64_t c, int lanes, auto tail) __attribute__((always_inline)) {
            constexpr bool kTail = decltype(tail)::value;
            const F g = LoadAt<Mode, kTail>(a.y, window.out * a.c + c, lanes) / area;
            ForTaps(
                a, window, [&](int, std::int64_t pixel) __attribute__((always_inline)) {
                  const std::int64_t to = pixel * a.c + c;
                  const F old = apart() ? F{} : LoadAt<ModeF32, kTail>(work, to, lanes);
                  StoreAt<ModeF32, kTail>(work, to, lanes, old + g);
                });
          });
    });
  });
}

}  // namespace ada::backend::cpu::ADA_ISA
