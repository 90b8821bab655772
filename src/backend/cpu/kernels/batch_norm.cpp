// Batch norm on one block: channel moments, the normalization with what follows it, and both passes
// of the gradient. Loops walk down the pixels with sums in registers, one column of 16 channels at
// a time or two that share a line of the cache; every channel's values are added in the same order.
//
//      channels ->
//      +------+------+------+--+
//    p | 16   | 16   | 16   |..|     the last column may be partial
//    i | |    | |    | |    |  |
//    x | v    | v    | v    |  |
//      +------+------+------+--+
#include "backend/cpu/kernels/columns.h"
#include "backend/cpu/kernels/functions.h"

namespace ada::backend::cpu::ADA_ISA {
namespace {

// Pixels of which fp32 sums are made before they are added to others.
constexpr std::int64_t kRun = 256;
// pixels(begin, end, run) for runs of at most 256 pixels.
template <class Run>
ADA_INLINE void ForPixelRuns(std::int64_t pixels, Run&& run) {
  for (std::int64_t begin = 0; begin < pixels; begin += kRun)
    run(begin, std::min<std::int64_t>(begin + kRun, pixels), static_cast<int>(begin / kRun));
}
// Two sums of one column of channels down the pixels, in kChains chains that hide latency. Those of
// a run of pixels are added to those before it: fp32 keeps more of sums of sums than of one long
// sum, whose error a network's layers would multiply.
template <int kChains>
struct ColumnSums {
  static_assert(kChains % 2 == 0);
  F chains[2][kChains]{}, all[2]{};
  ADA_INLINE void Add(int chain, F x, F y) { chains[0][chain] += x, chains[1][chain] += y; }
  ADA_INLINE void EndRun() {
    for (int i = 0; i < 2; ++i) {
      F sum = chains[i][0] + chains[i][1];
      for (int k = 2; k < kChains; k += 2) sum += chains[i][k] + chains[i][k + 1];
      all[i] += sum;
      for (F& chain : chains[i]) chain = F{};
    }
  }
};
// pixel(p, chain) for all pixels of a run: its k-th in chain k % kChains, those after the last
// whole round in 0. end_run() after each run.
template <int kChains, class Pixel, class End>
ADA_INLINE void ForPixels(std::int64_t pixels, Pixel&& pixel, End&& end_run) {
  ForPixelRuns(
      pixels, [&](std::int64_t p, std::int64_t end, int) __attribute__((always_inline)) {
        for (; p + kChains <= end; p += kChains)
          for (int k = 0; k < kChains; ++k) pixel(p + k, k);
        for (; p < end; ++p) pixel(p, 0);
        end_run();
      });
}

}  // namespace

// Deviations from the block's first pixel keep the fp32 sums small.
void ChannelMoments(TensorSpan in, std::int64_t pixels, std::int64_t channels, float* mean,
                    float* m2) {
  Dispatch({in}, [&](auto mode) {
    using Mode = decltype(mode);
    ForColumns<kColumnsAtOnce<Mode>>(
        channels, [&](std::int64_t c, int lanes, auto tail,
                      auto columns) __attribute__((always_inline)) {
          constexpr bool kTail = decltype(tail)::value;
          constexpr int kColumns = decltype(columns)::value;
          F origin[kColumns];
          for (int k = 0; k < kColumns; ++k)
            origin[k] = LoadAt<Mode, kTail>(in, c + k * kLanes, lanes);
          ColumnSums<4> sums[kColumns];
          ForPixels<4>(
              pixels,
              [&](std::int64_t p, int chain) __attribute__((always_inline)) {
                for (int k = 0; k < kColumns; ++k) {
                  const F x = LoadAt<Mode, kTail>(in, p * channels + c + k * kLanes, lanes);
                  const F d = x - origin[k];
                  sums[k].Add(chain, d, d * d);
                }
              },
              [&]() __attribute__((always_inline)) {
                for (ColumnSums<4>& sum : sums) sum.EndRun();
              });
          for (int k = 0; k < kColumns; ++k) {
            const F s = sums[k].all[0], q = sums[k].all[1];
            const F shift = s / Fill(static_cast<float>(pixels));
            const std::int64_t at = c + k * kLanes;
            SetParameter<kTail>(mean, at, lanes, origin[k] + shift);
            SetParameter<kTail>(m2, at, lanes, Max(q - s * shift, F{}) + (q - q));  // a NaN stays
          }
        });
  });
}

namespace {

// Without an addend y is rounded and stored, else y is rounded in registers and the rounded sum is
// stored. The relu comes after the last rounding.
template <class Mode, bool kRelu, bool kAdd, int kMost, class CounterY, class CounterSum>
ADA_INLINE void Normalize(const BatchNormForwardArgs& a, CounterY& y_counter,
                          CounterSum& sum_counter) {
  ForColumns<kMost>(
      a.channels, [&](std::int64_t c, int lanes, auto tail,
                      auto columns) __attribute__((always_inline)) {
        constexpr bool kTail = decltype(tail)::value;
        constexpr int kColumns = decltype(columns)::value;
        const Parameters<kColumns, kTail> mean(a.mean, c, lanes), factor(a.factor, c, lanes);
        const Parameters<kColumns, kTail> beta(a.beta, c, lanes);
        const I valid = FirstLanes(lanes);
        auto run = [&](std::int64_t begin, std::int64_t end, int) __attribute__((always_inline)) {
          const TensorSpan in = a.x, addend = a.addend, out = a.out;
          auto ys = y_counter.Begin();
          auto sums = sum_counter.Begin();
          const std::int64_t step = a.channels, last = end * step;
          for (std::int64_t pixel = begin * step + c; pixel < last; pixel += step) {
            for (int k = 0; k < kColumns; ++k) {
              const std::int64_t i = pixel + k * kLanes;
              const F x = (LoadAt<Mode, kTail>(in, i, lanes) - mean[k]) * factor[k] + beta[k];
              if constexpr (kAdd) {
                const F y = ys.template Round<kTail>(x, i, valid);
                const F sum = y + LoadAt<Mode, kTail>(addend, i, lanes);
                sums.template RoundInto<kTail, kRelu>(out, i, lanes, sum);
              } else {
                ys.template RoundInto<kTail, kRelu>(out, i, lanes, x);
              }
            }
          }
          y_counter.End(ys);
          if constexpr (kAdd) sum_counter.End(sums);
        };
        ForPixelRuns(a.pixels, run);
      });
}

}  // namespace

// If either rounding is counted, both go through the counting code; each stores what it was asked.
void BatchNormForward(const BatchNormForwardArgs& a) {
  const bool add = a.addend.data != nullptr;
  Dispatch({a.x, a.addend, a.out}, {&a.y, add ? &a.sum : &a.y}, [&](auto mode) {
    using Mode = decltype(mode);
    auto run = [&](auto count) {
      Counter<Mode, count(), Moments::kNone> y(a.y), sum(a.sum);
      // Counting keeps values in a buffer of one column at a time.
      constexpr int kMost = count() ? 1 : kColumnsAtOnce<Mode>;
      if (add && a.relu)
        Normalize<Mode, true, true, kMost>(a, y, sum);
      else if (add)
        Normalize<Mode, false, true, kMost>(a, y, sum);
      else if (a.relu)
        Normalize<Mode, true, false, kMost>(a, y, sum);
      else
        Normalize<Mode, false, false, kMost>(a, y, sum);
      y.Finish(a.pixels * a.channels);
      if (add) sum.Finish(a.pixels * a.channels);
    };
    if ((a.y.count && a.y.stats != nullptr) || (add && a.sum.count && a.sum.stats != nullptr))
      run(std::true_type{});
    else
      run(std::false_type{});
  });
}

namespace {
// dy masked in place where `out` is not positive.
template <class Mode, bool kTail>
ADA_INLINE F Masked(const TensorSpan& dy, const TensorSpan& out, std::int64_t i, int lanes) {
  if constexpr (kTail) {
    const F all = Mode::LoadFirst(dy, i, lanes);
    const F g = Select(Mode::LoadFirst(out, i, lanes) > F{}, all, F{});
    Mode::StoreFirst(dy, i, lanes, g);
    return g;
  } else {
    return Mode::MaskInPlace(dy, out, i);
  }
}
}  // namespace

// The mask is applied while dy is read for the sums: BatchNormBackward reads a masked dy.
void BatchNormSums(const BatchNormSumsArgs& a) {
  Dispatch({a.dy, a.x, a.out}, [&](auto mode) {
    using Mode = decltype(mode);
    auto run = [&](auto masked) __attribute__((always_inline)) {
      ForColumns<kColumnsAtOnce<Mode>>(
          a.channels, [&](std::int64_t c, int lanes, auto tail,
                          auto columns) __attribute__((always_inline)) {
            constexpr bool kTail = decltype(tail)::value;
            constexpr int kColumns = decltype(columns)::value;
            const Parameters<kColumns, kTail> mean(a.mean, c, lanes), inverse(a.inverse, c, lanes);
            const TensorSpan in = a.x, dy = a.dy, out = a.out;
            ColumnSums<2> sums[kColumns];
            ForPixels<2>(
                a.pixels,
                [&](std::int64_t p, int chain) __attribute__((always_inline)) {
                  for (int k = 0; k < kColumns; ++k) {
                    const std::int64_t i = p * a.channels + c + k * kLanes;
                    const F g = masked() ? Masked<Mode, kTail>(dy, out, i, lanes)
                                         : LoadAt<Mode, kTail>(dy, i, lanes);
                    const F x = LoadAt<Mode, kTail>(in, i, lanes);
                    sums[k].Add(chain, g, g * ((x - mean[k]) * inverse[k]));
                  }
                },
                [&]() __attribute__((always_inline)) {
                  for (ColumnSums<2>& sum : sums) sum.EndRun();
                });
            for (int k = 0; k < kColumns; ++k) {
              const std::int64_t at = c + k * kLanes;
              SetParameter<kTail>(a.sum_dy, at, lanes, sums[k].all[0]);
              SetParameter<kTail>(a.sum_dy_xhat, at, lanes, sums[k].all[1]);
            }
          });
    };
    if (a.out.data != nullptr)
      run(std::true_type{});
    else
      run(std::false_type{});
  });
}

namespace {

// dx = (dy - mean(dy) - xhat * mean(dy * xhat)) * factor, with slope = mean(dy * xhat) / deviation.
// Sums of moments wait in `later` where several columns are walked down together, so that they are
// added as if one came after the other.
template <class Mode, int kMost, class Stats>
ADA_INLINE void Differentiate(const BatchNormBackwardArgs& a, Stats& counter) {
  typename Stats::LaterSums later;
  ForColumns<kMost>(
      a.channels, [&](std::int64_t c, int lanes, auto tail,
                      auto columns) __attribute__((always_inline)) {
        constexpr bool kTail = decltype(tail)::value;
        constexpr int kColumns = decltype(columns)::value;
        const Parameters<kColumns, kTail> mean(a.mean, c, lanes), factor(a.factor, c, lanes);
        const Parameters<kColumns, kTail> mean_dy(a.mean_dy, c, lanes), slope(a.slope, c, lanes);
        int runs = 0;
        ForPixelRuns(
            a.pixels, [&](std::int64_t begin, std::int64_t end,
                          int run) __attribute__((always_inline)) {
              const TensorSpan in = a.x, dy = a.dy, dx = a.dx;
              auto loop = counter.template Begin<kColumns>();
              const std::int64_t step = a.channels, last = end * step;
              for (std::int64_t pixel = begin * step + c; pixel < last; pixel += step) {
                for (int k = 0; k < kColumns; ++k) {
                  const std::int64_t i = pixel + k * kLanes;
                  const F deviation = LoadAt<Mode, kTail>(in, i, lanes) - mean[k];
                  const F g = LoadAt<Mode, kTail>(dy, i, lanes) - mean_dy[k];
                  const F x = (g - deviation * slope[k]) * factor[k];
                  loop.template RoundInto<kTail>(dx, i, lanes, x, k);
                }
              }
              if constexpr (kColumns == 1)
                counter.End(loop);
              else
                counter.End(loop, later, run);
              runs = run + 1;
            });
        if constexpr (kColumns > 1) counter.EndSecond(later, runs, kColumns);
      });
}

}  // namespace

void BatchNormBackward(const BatchNormBackwardArgs& a) {
  Dispatch({a.dx, a.dy, a.x}, {&a.dx_rounding}, [&](auto mode) {
    using Mode = decltype(mode);
    DispatchStats<Mode>(a.dx_rounding, [&](auto count, auto moments) {
      Counter<Mode, count(), moments()> counter(a.dx_rounding);
      constexpr int kMost = count() ? 1 : kColumnsAtOnce<Mode>;
      // `later` has room for so many runs; more pixels are walked down one column at a time.
      if (a.pixels <= kRun * kMostRuns)
        Differentiate<Mode, kMost>(a, counter);
      else
        Differentiate<Mode, 1>(a, counter);
      counter.Finish(a.pixels * a.channels);
    });
  });
}

}  // namespace ada::backend::cpu::ADA_ISA
