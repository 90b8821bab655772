// Max and average pooling on the images of one block, channels as the vector dimension.
#include <limits>

#include "backend/cpu/kernels/columns.h"
#include "backend/cpu/kernels/functions.h"

namespace ada::backend::cpu::ADA_ISA {
namespace {

// window(y, x, out): the output pixel's position and its index among the block's output pixels.
template <class Window>
void ForWindows(const PoolArgs& a, std::int64_t image, Window&& window) {
  for (std::int64_t y = 0; y < a.out_h; ++y)
    for (std::int64_t x = 0; x < a.out_w; ++x) window(y, x, (image * a.out_h + y) * a.out_w + x);
}
// tap(position in the window, pixel) for the pixels of the window at (y, x) inside the image.
template <class Tap>
ADA_INLINE void ForTaps(const PoolArgs& a, std::int64_t y, std::int64_t x, Tap&& tap) {
  for (int ky = 0; ky < a.kernel_h; ++ky) {
    const std::int64_t iy = y * a.stride_h - a.pad_h + ky;
    if (iy < 0 || iy >= a.h) continue;
    for (int kx = 0; kx < a.kernel_w; ++kx) {
      const std::int64_t ix = x * a.stride_w - a.pad_w + kx;
      if (ix >= 0 && ix < a.w) tap(ky * a.kernel_w + kx, iy * a.w + ix);
    }
  }
}
Piece Image(const PoolArgs& a, std::int64_t image) {
  return {static_cast<std::byte*>(a.x.data) +
              image * a.h * a.w * a.c * static_cast<std::int64_t>(BytesOf(a.x.storage)),
          a.x.storage};
}
// The image's gradient, gathered in `work`, is rounded to dx.
template <class Mode, bool kCount, bool kMoments>
void StoreImage(const PoolArgs& a, std::int64_t image, Counter<Mode, kCount, kMoments>& counter) {
  const Piece work{a.work, Storage::kF32};
  const std::int64_t first = image * a.h * a.w * a.c;
  ForValues(
      a.h * a.w * a.c, counter,
      [&](std::int64_t i, int lanes, auto tail, auto& loop) __attribute__((always_inline)) {
        constexpr bool kTail = decltype(tail)::value;
        const F x = LoadAt<ModeF32, kTail>(work, i, lanes);
        loop.template RoundInto<kTail>(a.x, first + i, lanes, x);
      });
}
// Per image: clear `work`, let gather(mode, image) fill it, round it to dx.
template <class Gather>
void Backward(const PoolArgs& a, Gather&& gather) {
  Dispatch({a.x, a.y}, {&a.rounding}, [&](auto mode) {
    using Mode = decltype(mode);
    DispatchNotes<Mode>(a.rounding, [&](auto count, auto moments) {
      Counter<Mode, count(), moments()> counter(a.rounding);
      for (std::int64_t image = 0; image < a.images; ++image) {
        std::fill_n(a.work, a.h * a.w * a.c, 0.0f);
        gather(mode, image);
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
      const Piece x = Image(a, image);
      ForWindows(a, image, [&](std::int64_t oy, std::int64_t ox, std::int64_t out) {
        ForChannels(
            a.c, [&](std::int64_t c, int lanes, auto tail) __attribute__((always_inline)) {
              constexpr bool kTail = decltype(tail)::value;
              F best = Fill(-std::numeric_limits<float>::infinity());
              I where = I{} - 1;
              ForTaps(
                  a, oy, ox, [&](int position, std::int64_t pixel) __attribute__((always_inline)) {
                    const F v = LoadAt<Mode, kTail>(x, pixel * a.c + c, lanes);
                    const I better = (v > best) | (v != v) | (where < 0);
                    best = better ? v : best;
                    where = better ? I{} + position : where;
                  });
              StoreAt<Mode, kTail>(a.y, out * a.c + c, lanes, best);
              if (a.index != nullptr)
                for (int k = 0; k < lanes; ++k)
                  a.index[out * a.c + c + k] = static_cast<std::uint16_t>(where[k]);
            });
      });
    }
  });
}

void MaxPoolBackward(const PoolArgs& a) {
  Backward(a, [&](auto mode, std::int64_t image) {
    using Mode = decltype(mode);
    const Piece work{a.work, Storage::kF32};
    ForWindows(a, image, [&](std::int64_t oy, std::int64_t ox, std::int64_t out) {
      ForChannels(
          a.c, [&](std::int64_t c, int lanes, auto tail) __attribute__((always_inline)) {
            constexpr bool kTail = decltype(tail)::value;
            const F g = LoadAt<Mode, kTail>(a.y, out * a.c + c, lanes);
            H codes{};
            std::memcpy(&codes, a.index + out * a.c + c, static_cast<std::size_t>(lanes) * 2);
            const I where = __builtin_convertvector(codes, I);
            ForTaps(
                a, oy, ox, [&](int position, std::int64_t pixel) __attribute__((always_inline)) {
                  const std::int64_t i = pixel * a.c + c;
                  const F old = LoadAt<ModeF32, kTail>(work, i, lanes);
                  StoreAt<ModeF32, kTail>(work, i, lanes, where == position ? old + g : old);
                });
          });
    });
  });
}

void AvgPool(const PoolArgs& a) {
  Dispatch({a.x, a.y}, {&a.rounding}, [&](auto mode) {
    using Mode = decltype(mode);
    const F area = Fill(static_cast<float>(a.kernel_h * a.kernel_w));
    DispatchNotes<Mode>(a.rounding, [&](auto count, auto moments) {
      Counter<Mode, count(), moments()> counter(a.rounding);
      for (std::int64_t image = 0; image < a.images; ++image) {
        const Piece x = Image(a, image);
        ForWindows(a, image, [&](std::int64_t oy, std::int64_t ox, std::int64_t out) {
          ForValues(
              a.c, counter,
              [&](std::int64_t c, int lanes, auto tail, auto& loop) __attribute__((always_inline)) {
                constexpr bool kTail = decltype(tail)::value;
                F sum{};
                ForTaps(
                    a, oy, ox, [&](int, std::int64_t pixel) __attribute__((always_inline)) {
                      sum += LoadAt<Mode, kTail>(x, pixel * a.c + c, lanes);
                    });
                const std::int64_t i = out * a.c + c;
                loop.template RoundInto<kTail>(a.y, i, lanes, sum / area);
              });
        });
      }
      counter.Finish(a.images * a.out_h * a.out_w * a.c);
    });
  });
}

void AvgPoolBackward(const PoolArgs& a) {
  const F area = Fill(static_cast<float>(a.kernel_h * a.kernel_w));
  Backward(a, [&](auto mode, std::int64_t image) {
    using Mode = decltype(mode);
    const Piece work{a.work, Storage::kF32};
    ForWindows(a, image, [&](std::int64_t oy, std::int64_t ox, std::int64_t out) {
      ForChannels(
          a.c, [&](std::int64_t c, int lanes, auto tail) __attribute__((always_inline)) {
            constexpr bool kTail = decltype(tail)::value;
            const F g = LoadAt<Mode, kTail>(a.y, out * a.c + c, lanes) / area;
            ForTaps(
                a, oy, ox, [&](int, std::int64_t pixel) __attribute__((always_inline)) {
                  const std::int64_t i = pixel * a.c + c;
                  StoreAt<ModeF32, kTail>(work, i, lanes,
                                          LoadAt<ModeF32, kTail>(work, i, lanes) + g);
                });
          });
    });
  });
}

}  // namespace ada::backend::cpu::ADA_ISA
