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
template <UpdateRule::Kind kKind, int kStates, bool kApart, class R>
ADA_INLINE void Values(const UpdateArgs& args, const UpdateScalars& s, const R& r) {
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
      value[i] = r(terms.sum());
    }
    if constexpr (kStates > 0) a[i] = w.a;
    if constexpr (kStates > 1) b[i] = w.b;
    if constexpr (kStates > 2) c[i] = w.c;
  }
}

// kScalars: those whose branches are gone from the loop, of which there may be few where it becomes
// vectors.
enum class Scalars : std::uint8_t { kAny, kPlain, kFewBits };  // of most trainings; of few bits
Scalars ScalarsOf(const UpdateScalars& s) {
  if (!s.corrected || s.weight_decay != 0 || !(s.one_minus_beta1 < 0.5f)) return Scalars::kAny;
  return s.lerps ? Scalars::kPlain : Scalars::kFewBits;
}
template <UpdateRule::Kind kKind, int kStates, bool kApart, Scalars kScalars, class R>
ADA_INLINE void Loop(const UpdateArgs& args, const R& r) {
  UpdateScalars s = args.scalars;
  if constexpr (kKind == UpdateRule::Kind::kAdam) s.amsgrad = kStates == 3;
  if constexpr (kKind == UpdateRule::Kind::kRmsprop) {
    s.centered = kStates == 3;
    if constexpr (kStates == 1) s.momentum = 0;
  }
  if constexpr (kScalars != Scalars::kAny) {
    s.lerps = kScalars == Scalars::kPlain;
    s.corrected = true;
    s.weight_decay = 0;
    if (!(s.one_minus_beta1 < 0.5f)) __builtin_unreachable();
  }
  // The compiler does not take this branch out of a loop with roundings by itself.
  if constexpr (kScalars == Scalars::kPlain && !std::is_same_v<R, Unrounded>) {
    if (s.keep == 1) {
      s.keep = 1;
      return Values<kKind, kStates, kApart>(args, s, r);
    }
  }
  Values<kKind, kStates, kApart>(args, s, r);
}

template <UpdateRule::Kind kKind, int kStates>
void Apply(const UpdateArgs& args) {
  // A loop whose grid is a constant becomes one of vectors.
  static constexpr NumberGrid kGrid = GridOf(kBf16);
  const Scalars scalars = ScalarsOf(args.scalars);
  constexpr bool kDirection = kKind == UpdateRule::Kind::kMuon;  // a step alone
  if (args.arithmetic != nullptr) {
    const bool plain = scalars == Scalars::kPlain && *args.arithmetic == kGrid;
    const RoundedTo other{*args.arithmetic};
    if (kDirection || args.step != nullptr)
      return plain ? Loop<kKind, kStates, true, Scalars::kPlain>(args, RoundedTo{kGrid})
                   : Loop<kKind, kStates, true, Scalars::kAny>(args, other);
    if constexpr (!kDirection)
      return plain ? Loop<kKind, kStates, false, Scalars::kPlain>(args, RoundedTo{kGrid})
                   : Loop<kKind, kStates, false, Scalars::kAny>(args, other);
  }
  if (args.step != nullptr) {
    if (scalars == Scalars::kPlain)
      return Loop<kKind, kStates, true, Scalars::kPlain>(args, Unrounded());
    if constexpr (kKind == UpdateRule::Kind::kAdam)
      if (scalars == Scalars::kFewBits)
        return Loop<kKind, kStates, true, Scalars::kFewBits>(args, Unrounded());
    return Loop<kKind, kStates, true, Scalars::kAny>(args, Unrounded());
  }
  if constexpr (!kDirection) {
    if (scalars == Scalars::kPlain)
      return Loop<kKind, kStates, false, Scalars::kPlain>(args, Unrounded());
    Loop<kKind, kStates, false, Scalars::kAny>(args, Unrounded());
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
