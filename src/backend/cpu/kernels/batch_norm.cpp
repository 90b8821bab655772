// Batch norm on one block: channel moments, the normalisation with what follows it, and both passes
// of the gradient. Sixteen channels at a time down the pixels, so that sums stay in registers.
//
//      channels ->            a vector walks down its column of 16 channels;
//      +------+------+--+     the last column may be partial
//    p | 16   | 16   |..|
//    i | |    | |    |  |
//    x | v    | v    |  |
//      +------+------+--+
#include "backend/cpu/kernels/flat.h"
#include "backend/cpu/kernels/functions.h"

namespace ada::backend::cpu::ADA_ISA {
namespace {

// body(c, lanes, tail) for each group of 16 channels.
template <class Body>
ADA_INLINE void ForChannels(std::int64_t channels, Body&& body) {
  std::int64_t c = 0;
  for (; c + kLanes <= channels; c += kLanes) body(c, kLanes, std::false_type{});
  if (c < channels) body(c, static_cast<int>(channels - c), std::true_type{});
}
template <bool kTail>
ADA_INLINE F Parameter(const float* p, std::int64_t c, int lanes) {
  return LoadAt<ModeF32, kTail>(Piece{const_cast<float*>(p), Storage::kF32}, c, lanes);
}
template <bool kTail>
ADA_INLINE void SetParameter(float* p, std::int64_t c, int lanes, F v) {
  StoreAt<ModeF32, kTail>(Piece{p, Storage::kF32}, c, lanes, v);
}
// pixel(i) for the values of a column; flush after each 256 pixels.
template <class Pixel, class Flush>
ADA_INLINE void ForPixels(std::int64_t pixels, std::int64_t channels, std::int64_t c, Pixel&& pixel,
                          Flush&& flush) {
  for (std::int64_t begin = 0; begin < pixels; begin += 256) {
    const std::int64_t end = std::min<std::int64_t>(begin + 256, pixels);
    for (std::int64_t p = begin; p < end; ++p) pixel(p * channels + c);
    flush();
  }
}

}  // namespace

// Deviations from the block's first pixel keep the fp32 sums small; four chains hide latency.
void ChannelMoments(Piece in, std::int64_t pixels, std::int64_t channels, float* mean, float* m2) {
  Dispatch(
      {in},
      in.storage == Storage::kF32   ? kFp32
      : in.storage == Storage::kF16 ? kFp16
                                    : kBf16,
      [&](auto mode) {
        using Mode = decltype(mode);
        ForChannels(
            channels, [&](std::int64_t c, int lanes, auto tail) __attribute__((always_inline)) {
              constexpr bool kTail = decltype(tail)::value;
              const F origin = LoadAt<Mode, kTail>(in, c, lanes);
              F sum[4]{}, square[4]{};
              std::int64_t p = 0;
              for (; p + 4 <= pixels; p += 4) {
                for (int k = 0; k < 4; ++k) {
                  const F d = LoadAt<Mode, kTail>(in, (p + k) * channels + c, lanes) - origin;
                  sum[k] += d;
                  square[k] += d * d;
                }
              }
              for (; p < pixels; ++p) {
                const F d = LoadAt<Mode, kTail>(in, p * channels + c, lanes) - origin;
                sum[0] += d;
                square[0] += d * d;
              }
              const F s = (sum[0] + sum[1]) + (sum[2] + sum[3]);
              const F q = (square[0] + square[1]) + (square[2] + square[3]);
              const F shift = s / Fill(static_cast<float>(pixels));
              SetParameter<kTail>(mean, c, lanes, origin + shift);
              SetParameter<kTail>(m2, c, lanes, Max(q - s * shift, F{}) + (q - q));  // a NaN stays
            });
      });
}

namespace {

template <class Mode, bool kRelu, bool kAdd, class CounterY, class CounterSum>
ADA_INLINE void Normalise(const BatchNormForwardArgs& a, CounterY& y_counter,
                          CounterSum& sum_counter) {
  ForChannels(
      a.channels, [&](std::int64_t c, int lanes, auto tail) __attribute__((always_inline)) {
        constexpr bool kTail = decltype(tail)::value;
        const F mean = Parameter<kTail>(a.mean, c, lanes),
                factor = Parameter<kTail>(a.factor, c, lanes);
        const F beta = Parameter<kTail>(a.beta, c, lanes);
        const I valid = FirstLanes(lanes);
        ForPixels(
            a.pixels, a.channels, c,
            [&](std::int64_t i) __attribute__((always_inline)) {
              const F x = (LoadAt<Mode, kTail>(a.x, i, lanes) - mean) * factor + beta;
              F r = Mode::Round(x, y_counter.grid());
              y_counter.template Add<kTail>(x, r, valid);
              if constexpr (kAdd) {
                const F sum = r + LoadAt<Mode, kTail>(a.addend, i, lanes);
                r = Mode::Round(sum, sum_counter.grid());
                sum_counter.template Add<kTail>(sum, r, valid);
              }
              if constexpr (kRelu) r = r <= F{} ? F{} : r;
              StoreAt<Mode, kTail>(a.out, i, lanes, r);
            },
            [&] { y_counter.Flush(), sum_counter.Flush(); });
      });
}

}  // namespace

void BatchNormForward(const BatchNormForwardArgs& a) {
  Dispatch({a.x, a.addend, a.out}, a.y.format, [&](auto mode) {
    using Mode = decltype(mode);
    DispatchNotes<Mode>(a.y, [&](auto count, auto) {
      Counter<Mode, count(), false> y(a.y), sum(a.sum);
      if (a.addend.data && a.relu)
        Normalise<Mode, true, true>(a, y, sum);
      else if (a.addend.data)
        Normalise<Mode, false, true>(a, y, sum);
      else if (a.relu)
        Normalise<Mode, true, false>(a, y, sum);
      else
        Normalise<Mode, false, false>(a, y, sum);
      y.Finish(a.pixels * a.channels);
      sum.Finish(a.pixels * a.channels);
    });
  });
}

void BatchNormSums(const BatchNormSumsArgs& a) {
  const NumberFormat own = a.dy.storage == Storage::kF32   ? kFp32
                           : a.dy.storage == Storage::kF16 ? kFp16
                                                           : kBf16;
  Dispatch({a.dy, a.x, a.out}, own, [&](auto mode) {
    using Mode = decltype(mode);
    auto run = [&](auto masked) __attribute__((always_inline)) {
      ForChannels(
          a.channels, [&](std::int64_t c, int lanes, auto tail) __attribute__((always_inline)) {
            constexpr bool kTail = decltype(tail)::value;
            const F mean = Parameter<kTail>(a.mean, c, lanes),
                    inverse = Parameter<kTail>(a.inverse, c, lanes);
            F sum[2]{}, product[2]{};
            auto pixel = [&](std::int64_t p, int k) __attribute__((always_inline)) {
              const std::int64_t i = p * a.channels + c;
              F g = LoadAt<Mode, kTail>(a.dy, i, lanes);
              if constexpr (masked()) {
                g = LoadAt<Mode, kTail>(a.out, i, lanes) > F{} ? g : F{};
                StoreAt<Mode, kTail>(a.dy, i, lanes, g);
              }
              sum[k] += g;
              product[k] += g * ((LoadAt<Mode, kTail>(a.x, i, lanes) - mean) * inverse);
            };
            std::int64_t p = 0;
            for (; p + 2 <= a.pixels; p += 2) pixel(p, 0), pixel(p + 1, 1);
            if (p < a.pixels) pixel(p, 0);
            SetParameter<kTail>(a.sum_dy, c, lanes, sum[0] + sum[1]);
            SetParameter<kTail>(a.sum_dy_xhat, c, lanes, product[0] + product[1]);
          });
    };
    if (a.out.data != nullptr)
      run(std::true_type{});
    else
      run(std::false_type{});
  });
}

void BatchNormBackward(const BatchNormBackwardArgs& a) {
  Dispatch({a.dx, a.dy, a.x}, a.dx_rounding.format, [&](auto mode) {
    using Mode = decltype(mode);
    DispatchNotes<Mode>(a.dx_rounding, [&](auto count, auto moments) {
      Counter<Mode, count(), moments()> counter(a.dx_rounding);
      ForChannels(
          a.channels, [&](std::int64_t c, int lanes, auto tail) __attribute__((always_inline)) {
            constexpr bool kTail = decltype(tail)::value;
            const F mean = Parameter<kTail>(a.mean, c, lanes),
                    factor = Parameter<kTail>(a.factor, c, lanes);
            const F mean_dy = Parameter<kTail>(a.mean_dy, c, lanes),
                    slope = Parameter<kTail>(a.slope, c, lanes);
            const I valid = FirstLanes(lanes);
            ForPixels(
                a.pixels, a.channels, c,
                [&](std::int64_t i) __attribute__((always_inline)) {
                  const F deviation = LoadAt<Mode, kTail>(a.x, i, lanes) - mean;
                  const F g = LoadAt<Mode, kTail>(a.dy, i, lanes) - mean_dy;
                  const F x = (g - deviation * slope) * factor;
                  const F r = Mode::Round(x, counter.grid());
                  counter.template Add<kTail>(x, r, valid);
                  StoreAt<Mode, kTail>(a.dx, i, lanes, r);
                },
                [&] { counter.Flush(); });
          });
      counter.Finish(a.pixels * a.channels);
    });
  });
}

}  // namespace ada::backend::cpu::ADA_ISA
