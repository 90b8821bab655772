// Kernels on fp32 parameters and their gradients.
#include <algorithm>
#include <type_traits>

#include "number/host_device.h"

// A call of a formula would keep its loop from becoming one of vectors.
#undef ADA_HOST_DEVICE
#define ADA_HOST_DEVICE __attribute__((always_inline))

#include "backend/cpu/kernels/flat.h"
#include "backend/cpu/kernels/functions.h"
#include "backend/cpu/update_args.h"
#include "backend/update_kinds.h"

namespace ada::backend::cpu::ADA_ISA {

void Accumulate(const float* x, float* accumulator, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) accumulator[i] += x[i];
}

void Unscale(const float* x, float scale, bool add, float* out, std::int64_t n) {
  if (add) {
    for (std::int64_t i = 0; i < n; ++i) out[i] += x[i] / scale;
  } else {
    for (std::int64_t i = 0; i < n; ++i) out[i] = x[i] / scale;
  }
}

// In double, lane by lane: squares of fp32 values are exact there.
double SumSquares(const float* x, std::int64_t n) {
  const TensorSpan in{const_cast<float*>(x), Storage::kF32};
  Sums<true> sums;
  ForValues(
      n, [&](std::int64_t i, int lanes, auto tail) __attribute__((always_inline)) {
        sums.Add(LoadAt<ModeF32, decltype(tail)::value>(in, i, lanes));
      });
  double sum = 0, square = 0;
  sums.Flush(sum, square);
  return square;
}

namespace {

// Formulas are scalars that all backends share (update_rules.h, update_kinds.h); the compiler makes
// vectors of the loops. kStates: how many of them the kind has here; the others are not touched.
template <UpdateRule::Kind kKind, int kStates, bool kApart, class R, class Keep>
ADA_INLINE void Values(const UpdateArgs& args, const UpdateScalars& s, const R& r,
                       const Keep& keep) {
  constexpr bool kDirection = kKind == UpdateRule::Kind::kMuon;  // `value` is null
  const bool momentum = kStates > 0;
  float* __restrict value = args.value, * __restrict step = args.step;
  const float* __restrict gradient = args.gradient;
  float* __restrict a = args.states[0], * __restrict b = args.states[1], * __restrict c = args.states[2];
  for (std::int64_t i = 0; i < args.n; ++i) {
    WeightStates w;
    if constexpr (kStates > 0) w.a = a[i];
    if constexpr (kStates > 1) w.b = b[i];
    if constexpr (kStates > 2) w.c = c[i];
    const float before = kDirection ? 0 : value[i];
    const UpdateTerms terms = TermsOf<kKind>(s, r, momentum, before, gradient[i], w);
    if constexpr (kApart) {
      if constexpr (!kDirection) value[i] = terms.base;
      step[i] = terms.step;
    } else {
      value[i] = keep.Value(terms.sum());
    }
    if constexpr (kStates > 0) a[i] = keep.State(0, w.a);
    if constexpr (kStates > 1) b[i] = keep.State(1, w.b);
    if constexpr (kStates > 2) c[i] = keep.State(2, w.c);
  }
}

struct Directly {
  DirectRounding how;
  ADA_HOST_DEVICE float operator()(float x) const { return RoundDirectly(how, x); }
};

// How results are kept: as they are computed, all of them or all but the new weight, or rounded.
struct AsComputed {
  float Value(float x) const { return x; }
  float State(int, float x) const { return x; }
};
struct StatesAsComputed {
  Directly value;
  float Value(float x) const { return value(x); }
  float State(int, float x) const { return x; }
};
struct Kept {
  KeptInPlace in;
  float Value(float x) const { return RoundDirectly(in.value, x); }
  float State(int i, float x) const { return RoundDirectly(in.states[i], x); }
};

// Whether scalars are those of most trainings. Where it is known, branches are gone from the loop,
// which becomes one of vectors.
template <UpdateRule::Kind kKind>
bool ArePlain(const UpdateScalars& s) {
  if (kKind == UpdateRule::Kind::kSgd && (s.first || s.steps || s.undamped != 1)) return false;
  return s.corrected && s.weight_decay == 0 && s.one_minus_beta1 < 0.5f;
}
// Calls loop(), for which the compiler knows the flag.
template <class Loop>
ADA_INLINE void Unswitch(bool UpdateScalars::*flag, UpdateScalars& s, const Loop& loop) {
  if (s.*flag) {
    s.*flag = true;
    return loop();
  }
  s.*flag = false;
  loop();
}
template <UpdateRule::Kind kKind, int kStates, bool kApart, bool kPlain, class R, class Keep>
ADA_INLINE void Loop(const UpdateArgs& args, const R& r, const Keep& keep) {
  using Kind = UpdateRule::Kind;
  UpdateScalars s = args.scalars;
  if constexpr (kKind == Kind::kAdam) s.amsgrad = kStates == 3;
  if constexpr (kKind == Kind::kRmsprop) {
    s.centered = kStates == 3;
    if constexpr (kStates == 1) s.momentum = 0;
  }
  const auto values = [&]() __attribute__((always_inline)) {
    Values<kKind, kStates, kApart>(args, s, r, keep);
  };
  if constexpr (!kPlain) {
    values();
  } else {
    s.corrected = true;
    s.weight_decay = 0;
    if (!(s.one_minus_beta1 < 0.5f)) __builtin_unreachable();
    // The compiler does not take these branches out of a loop with roundings by itself.
    constexpr bool kAverages = kKind == Kind::kAdam || kKind == Kind::kNadam ||
                               kKind == Kind::kRadam || kKind == Kind::kAdemamix;
    const auto averages = [&]() __attribute__((always_inline)) {
      if constexpr (!std::is_same_v<R, Unrounded>) {
        s.lerps = true;
        if (s.keep != 1) return values();
        s.keep = 1;
        values();
      } else if constexpr (kAverages) {
        Unswitch(&UpdateScalars::lerps, s, values);
      } else {
        s.lerps = true;
        values();
      }
    };
    if constexpr (kKind == Kind::kSgd) {
      s.first = s.steps = false, s.undamped = 1;
      Unswitch(&UpdateScalars::nesterov, s, values);
    } else if constexpr (kKind == Kind::kRadam) {
      Unswitch(&UpdateScalars::rectified, s, averages);
    } else {
      averages();
    }
  }
}
template <UpdateRule::Kind kKind, int kStates, bool kApart, class R, class Keep>
void LoopOf(bool plain, const UpdateArgs& args, const R& r, const Keep& keep) {
  plain ? Loop<kKind, kStates, kApart, true>(args, r, keep)
        : Loop<kKind, kStates, kApart, false>(args, r, keep);
}

template <UpdateRule::Kind kKind, int kStates>
void Apply(const UpdateArgs& args) {
  constexpr bool kDirection = kKind == UpdateRule::Kind::kMuon;  // a step alone
  const bool plain = ArePlain<kKind>(args.scalars);
  const bool apart = kDirection || args.step != nullptr;
  if (args.arithmetic != nullptr) {
    const EachRounded<Directly> direct{{DirectOf(*args.arithmetic)}};
    if (!RoundsDirectly(*args.arithmetic))
      return Loop<kKind, kStates, true, false>(args, RoundedTo{{*args.arithmetic}}, AsComputed());
    if (apart) return LoopOf<kKind, kStates, true>(plain, args, direct, AsComputed());
    if constexpr (!kDirection)
      LoopOf<kKind, kStates, false>(plain, args, direct, StatesAsComputed{direct.round});
    return;
  }
  if (apart) return LoopOf<kKind, kStates, true>(plain, args, Unrounded(), AsComputed());
  if constexpr (!kDirection) {
    if (args.kept != nullptr)
      return LoopOf<kKind, kStates, false>(plain, args, Unrounded(), Kept{*args.kept});
    LoopOf<kKind, kStates, false>(plain, args, Unrounded(), AsComputed());
  }
}

}  // namespace

void Update(const UpdateArgs& args) {
  using Kind = UpdateRule::Kind;
  const int states = args.states[2] != nullptr   ? 3
                     : args.states[1] != nullptr ? 2
                     : args.states[0] != nullptr ? 1
                                                 : 0;
  switch (args.kind) {
    case Kind::kSgd:
      return states == 0 ? Apply<Kind::kSgd, 0>(args) : Apply<Kind::kSgd, 1>(args);
    case Kind::kAdam:
    case Kind::kAdamW:
      return states == 3 ? Apply<Kind::kAdam, 3>(args) : Apply<Kind::kAdam, 2>(args);
    case Kind::kLion:
      return Apply<Kind::kLion, 1>(args);
    case Kind::kRmsprop:
      return states == 3   ? Apply<Kind::kRmsprop, 3>(args)
             : states == 2 ? Apply<Kind::kRmsprop, 2>(args)
                           : Apply<Kind::kRmsprop, 1>(args);
    case Kind::kNadam:
      return Apply<Kind::kNadam, 2>(args);
    case Kind::kRadam:
      return Apply<Kind::kRadam, 2>(args);
    case Kind::kAdagrad:
      return Apply<Kind::kAdagrad, 1>(args);
    case Kind::kAdamax:
      return Apply<Kind::kAdamax, 2>(args);
    case Kind::kScheduleFree:
      return Apply<Kind::kScheduleFree, 2>(args);
    case Kind::kAdopt:
      return Apply<Kind::kAdopt, 2>(args);
    case Kind::kAdemamix:
      return Apply<Kind::kAdemamix, 3>(args);
    case Kind::kLamb:
      return Apply<Kind::kLamb, 2>(args);
    case Kind::kStableAdamW:
      return Apply<Kind::kStableAdamW, 2>(args);
    case Kind::kMuon:
      return Apply<Kind::kMuon, 1>(args);
    case Kind::kAdafactor:
      return;  // whole matrices: cpu/ops/matrix_updates.h
  }
}

namespace {

ADA_INLINE float ValueOf(float x) { return x; }
ADA_INLINE float ValueOf(std::uint16_t code) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(code) << 16);
}

// A product of two fp32 values is exact in double.
template <class T>
ADA_INLINE void CombineWith(float factor, const T* __restrict x, float share, float* __restrict y,
                            std::int64_t n) {
  const auto wide = static_cast<double>(factor);
  for (std::int64_t i = 0; i < n; ++i) {
    const float rest = share * y[i];
    y[i] =
        static_cast<float>(wide * static_cast<double>(ValueOf(x[i])) + static_cast<double>(rest));
  }
}

}  // namespace

void Combine(float factor, TensorSpan x, float share, float* y, std::int64_t n) {
  if (x.storage == Storage::kBF16)
    return CombineWith(factor, static_cast<const std::uint16_t*>(x.data), share, y, n);
  CombineWith(factor, static_cast<const float*>(x.data), share, y, n);
}

void ColumnSquares(const float* x, std::int64_t rows, std::int64_t columns, std::int64_t step,
                   double* __restrict sums) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* __restrict row = x + r * step;
    for (std::int64_t c = 0; c < columns; ++c)
      sums[c] += static_cast<double>(row[c]) * static_cast<double>(row[c]);
  }
}

void DivideByRoots(const float* __restrict gradient, float row, const float* __restrict columns,
                   float least, float* __restrict change, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const float square = row * columns[i];
    change[i] = gradient[i] / std::sqrt(square < least ? least : square);
  }
}

}  // namespace ada::backend::cpu::ADA_ISA
