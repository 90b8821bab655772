// Kernels on runs of values: widening, rounding with counting, exact masks, sums of several
// tensors.
#include "backend/cpu/kernels/flat.h"
#include "backend/cpu/kernels/functions.h"

namespace ada::backend::cpu::ADA_ISA {

void Widen(TensorSpan in, float* out, std::int64_t n) {
  Dispatch({in}, [&](auto mode) {
    using Mode = decltype(mode);
    const TensorSpan to{out, Storage::kF32};
    ForValues(
        n, [&](std::int64_t i, int lanes, auto tail) __attribute__((always_inline)) {
          constexpr bool kTail = decltype(tail)::value;
          StoreAt<ModeF32, kTail>(to, i, lanes, LoadAt<Mode, kTail>(in, i, lanes));
        });
  });
}

// The factor is S or alpha: it multiplies in fp32, before the one rounding.
void Round(const float* in, float factor, TensorSpan out, std::int64_t n,
           const Rounding& rounding) {
  const TensorSpan from{const_cast<float*>(in), Storage::kF32};
  const F f = Fill(factor);
  const auto run = [&](auto mode) {
    using Mode = decltype(mode);
    RoundValues<Mode>(
        out, n, rounding, [=](std::int64_t i, int lanes, auto tail) __attribute__((always_inline)) {
          return LoadAt<ModeF32, decltype(tail)::value>(from, i, lanes) * f;
        });
  };
  // Weights of 16-bit formats that are multiplied in fp32: rounded by the conversion, kept in 32
  // bits.
  const bool widened = out.storage == Storage::kF32 && !rounding.stochastic && rounding.scale == 1;
  if (widened && rounding.format == kFp16) return run(ModeWidened<ModeF16>{});
  if (widened && rounding.format == kBf16) return run(ModeWidened<ModeBF16>{});
  Dispatch({out}, {&rounding}, run);
}

// A chunk that another library wrote, or a tensor that was moved, is measured as if it had been
// rounded here.
void Inspect(TensorSpan in, std::int64_t n, const Rounding& rounding) {
  Dispatch({in}, {&rounding}, [&](auto mode) {
    using Mode = decltype(mode);
    DispatchStats<Mode>(rounding, [&](auto count, auto moments) {
      Counter<Mode, count(), moments()> counter(rounding);
      ForValues(
          n, counter,
          [&](std::int64_t i, int lanes, auto tail, auto& loop) __attribute__((always_inline)) {
            constexpr bool kTail = decltype(tail)::value;
            loop.template Inspect<kTail>(LoadAt<Mode, kTail>(in, i, lanes), FirstLanes(lanes));
          });
      counter.Finish(n);
    });
  });
}

void Relu(TensorSpan x, TensorSpan y, std::int64_t n) {
  Dispatch({x, y}, [&](auto mode) {
    using Mode = decltype(mode);
    ForValues(
        n, [&](std::int64_t i, int lanes, auto tail) __attribute__((always_inline)) {
          constexpr bool kTail = decltype(tail)::value;
          const F v = LoadAt<Mode, kTail>(x, i, lanes);
          StoreAt<Mode, kTail>(y, i, lanes, PositivePart(v));
        });
  });
}

// Exact: the rounding only measures.
void ReluBackward(TensorSpan dy, TensorSpan y, TensorSpan dx, std::int64_t n,
                  const Rounding& rounding) {
  Dispatch({dy, y, dx}, {&rounding}, [&](auto mode) {
    using Mode = decltype(mode);
    RoundValues<Mode>(
        dx, n, rounding, [=](std::int64_t i, int lanes, auto tail) __attribute__((always_inline)) {
          constexpr bool kTail = decltype(tail)::value;
          const F g = LoadAt<Mode, kTail>(dy, i, lanes);
          return Select(LoadAt<Mode, kTail>(y, i, lanes) > F{}, g, F{});
        });
  });
}

void Sum(const TensorSpan* in, const float* factors, int count, TensorSpan out, std::int64_t n,
         const Rounding& rounding) {
  // Two terms are the common count.
  const TensorSpan first = in[0], second = in[count > 1 ? 1 : 0];
  const float factor1 = factors != nullptr ? factors[0] : 1;
  const float factor2 = factors != nullptr && count > 1 ? factors[1] : 1;
  auto run = [&](auto mode) {
    using Mode = decltype(mode);
    RoundValues<Mode>(
        out, n, rounding, [=](std::int64_t i, int lanes, auto tail) __attribute__((always_inline)) {
          constexpr bool kTail = decltype(tail)::value;
          F sum = LoadAt<Mode, kTail>(first, i, lanes) * Fill(factor1);
          if (count > 1) sum += LoadAt<Mode, kTail>(second, i, lanes) * Fill(factor2);
          for (int k = 2; k < count; ++k)
            sum += LoadAt<Mode, kTail>(in[k], i, lanes) * Fill(factors != nullptr ? factors[k] : 1);
          return sum;
        });
  };
  // Branches may lie in other storage than their sum.
  bool same = true;
  for (int k = 0; k < count; ++k) same = same && in[k].storage == out.storage;
  if (same)
    Dispatch({out}, {&rounding}, run);
  else
    run(ModeAny{});
}

void Uniform(std::uint64_t key, std::uint64_t draw, std::int64_t first, std::int64_t n,
             float* out) {
  WordsOfStretch words(key, draw, static_cast<std::uint64_t>(first), n);
  const TensorSpan to{out, Storage::kF32};
  ForValues(
      n, [&](std::int64_t i, int lanes, auto tail) __attribute__((always_inline)) {
        const F numbers = ToFloats((I)(words.At(i) >> 8)) * 0x1p-24f;
        StoreAt<ModeF32, decltype(tail)::value>(to, i, lanes, numbers);
      });
}

}  // namespace ada::backend::cpu::ADA_ISA
