// Batch norm on one block: channel moments, the normalisation with what follows it, and both passes
// of the gradient. Sixteen channels at a time down the pixels, so that sums stay in registers.
//
//      channels ->            a vector walks down its column of 16 channels;
//      +------+------+--+     the last column may be partial
//    p | 16   | 16   |..|
//    i | |    | |    |  |
//    x | v    | v    |  |
//      +------+------+--+
#include "backend/cpu/kernels/columns.h"
#include "backend/cpu/kernels/functions.h"

namespace ada::backend::cpu::ADA_ISA {
namespace {

// pixels(begin, end) for at most 256 pixels at a time.
template <class Run>
ADA_INLINE void ForPixelRuns(std::int64_t pixels, Run&& run) {
  for (std::int64_t begin = 0; begin < pixels; begin += 256)
    run(begin, std::min<std::int64_t>(begin + 256, pixels));
}

}  // namespace

// Deviations from the block's first pixel keep the fp32 sums small; four chains hide latency.
void ChannelMoments(Piece in, std::int64_t pixels, std::int64_t channels, float* mean, float* m2) {
  Dispatch({in}, [&](auto mode) {
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
        ForPixelRuns(
            a.pixels, [&](std::int64_t begin, std::int64_t end) __attribute__((always_inline)) {
              const Piece in = a.x, addend = a.addend, out = a.out;
              auto ys = y_counter.Begin();
              auto sums = sum_counter.Begin();
              std::int64_t i = begin * a.channels + c;
              for (const std::int64_t step = a.channels, last = end * step; i < last; i += step) {
                const F x = (LoadAt<Mode, kTail>(in, i, lanes) - mean) * factor + beta;
                F r = ys.template Round<kTail>(x, i, valid);
                if constexpr (kAdd) {
                  r += LoadAt<Mode, kTail>(addend, i, lanes);
                  r = sums.template Round<kTail>(r, i, valid);
                }
                if constexpr (kRelu) r = r <= F{} ? F{} : r;
                StoreAt<Mode, kTail>(out, i, lanes, r);
              }
              y_counter.End(ys);
              if constexpr (kAdd) sum_counter.End(sums);
            });
      });
}

}  // namespace

// Both roundings are counted where one is to be; each keeps what it was asked for.
void BatchNormForward(const BatchNormForwardArgs& a) {
  const bool add = a.addend.data != nullptr;
  Dispatch({a.x, a.addend, a.out}, {&a.y, add ? &a.sum : &a.y}, [&](auto mode) {
    using Mode = decltype(mode);
    auto run = [&](auto count) {
      Counter<Mode, count(), false> y(a.y), sum(a.sum);
      if (add && a.relu)
        Normalise<Mode, true, true>(a, y, sum);
      else if (add)
        Normalise<Mode, false, true>(a, y, sum);
      else if (a.relu)
        Normalise<Mode, true, false>(a, y, sum);
      else
        Normalise<Mode, false, false>(a, y, sum);
      y.Finish(a.pixels * a.channels);
      if (add) sum.Finish(a.pixels * a.channels);
    };
    if ((a.y.count && a.y.stats != nullptr) || (add && a.sum.count && a.sum.stats != nullptr))
      run(std::true_type{});
    else
      run(std::false_type{});
  });
}

void BatchNormSums(const BatchNormSumsArgs& a) {
  Dispatch({a.dy, a.x, a.out}, [&](auto mode) {
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
  Dispatch({a.dx, a.dy, a.x}, {&a.dx_rounding}, [&](auto mode) {
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
            ForPixelRuns(
                a.pixels, [&](std::int64_t begin, std::int64_t end) __attribute__((always_inline)) {
                  const Piece in = a.x, dy = a.dy, dx = a.dx;
                  auto loop = counter.Begin();
                  std::int64_t i = begin * a.channels + c;
                  for (const std::int64_t step = a.channels, last = end * step; i < last;
                       i += step) {
                    const F deviation = LoadAt<Mode, kTail>(in, i, lanes) - mean;
                    const F g = LoadAt<Mode, kTail>(dy, i, lanes) - mean_dy;
                    loop.template RoundInto<kTail>(dx, i, lanes, (g - deviation * slope) * factor);
                  }
                  counter.End(loop);
                });
          });
      counter.Finish(a.pixels * a.channels);
    });
  });
}

}  // namespace ada::backend::cpu::ADA_ISA
