// Kernels on fp32 parameters and their gradients.
#include <algorithm>

#include "backend/cpu/kernels/flat.h"
#include "backend/cpu/kernels/functions.h"
#include "backend/update_rules.h"

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

// Formulas are scalars that all backends share (update_rules.h); the compiler makes vectors of the
// loops. `first` and `n` cut a tensor among threads, which changes no value.
void Update(const UpdateRule& rule, const UpdateStep& step, const UpdateSlot& slot,
            std::int64_t first, std::int64_t n) {
  const UpdateScalars s = MakeUpdateScalars(rule, step, slot.lr, slot.decay);
  float* value = slot.value.f32() + first;
  const float* gradient = slot.gradient.f32() + first;
  float* state1 = slot.state1 ? slot.state1.f32() + first : nullptr;
  float* state2 = slot.state2 ? slot.state2.f32() + first : nullptr;
  if (rule.kind != UpdateRule::Kind::kSgd) {
    for (std::int64_t i = 0; i < n; ++i)
      value[i] = AdamUpdate(s, value[i], gradient[i], state1[i], state2[i]);
  } else if (state1 != nullptr) {
    for (std::int64_t i = 0; i < n; ++i)
      value[i] = SgdMomentumUpdate(s, value[i], gradient[i], state1[i]);
  } else {
    for (std::int64_t i = 0; i < n; ++i) value[i] = SgdUpdate(s, value[i], gradient[i]);
  }
}

}  // namespace ada::backend::cpu::ADA_ISA
