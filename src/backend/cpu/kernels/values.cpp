// Values of layers that are defined once, as loops that the compiler turns into vectors.
#include <algorithm>

#include "backend/cpu/kernels/functions.h"
#include "backend/cpu/value_kernels.h"

namespace ada::backend::cpu::ADA_ISA {
namespace {

#define ADA_LOOP [[gnu::always_inline]] inline

// What makers that gather read: value i of the whole input.
struct WidenedInput {
  ADA_LOOP float operator[](std::int64_t i) const { return values[i - first]; }
  const float* values;
  std::int64_t first;
};

template <class Maker>
ADA_LOOP void FillRun(const Maker& maker, const RunIndex& at, const FillArgs& a, int length,
                      float* __restrict out, const float* __restrict second) {
  const WidenedInput input = {a.input, a.image * a.input_values};
  if constexpr (Maker::kMakes == Makes::kRuns) {
    const auto run = maker.Run(at, a.random);
    for (int c = 0; c < length; ++c)
      if constexpr (InputsOf<Maker>() == 2)
        out[c] = run(c, out[c], second[c]);
      else
        out[c] = run(c, out[c]);
  } else if constexpr (Maker::kMakes == Makes::kGathers) {
    const auto run = maker.Run(at, input);
    for (int c = 0; c < length; ++c) out[c] = run(c);
  } else {
    for (int c = 0; c < length; ++c) out[c] = 0;
    maker.ForTerms(
        at, [&](std::int64_t from, float share) __attribute__((always_inline)) {
          const float* __restrict x = input.values + (from - input.first);
          for (int c = 0; c < length; ++c) out[c] = out[c] + x[c] * share;
        });
  }
}

template <class Maker>
void FillValues(const Maker& given, const FillArgs& args) {
  const Maker maker = given;
  const FillArgs a = args;
  float* __restrict out = a.out;
  const float* __restrict second = a.second;
  if constexpr (IsRandom<Maker>()) {
    constexpr std::int64_t kPart = 1024;
    float numbers[kPart];
    for (std::int64_t first = 0; first < a.values; first += kPart, out += kPart) {
      const std::int64_t n = std::min(kPart, a.values - first);
      Uniform(a.random.key, a.random.draw, a.random.first + first, n, numbers);
      for (std::int64_t i = 0; i < n; ++i) out[i] = maker(out[i], numbers[i]);
    }
  } else if constexpr (Maker::kMakes == Makes::kEach) {
    for (std::int64_t i = 0; i < a.values; ++i)
      if constexpr (InputsOf<Maker>() == 2)
        out[i] = maker(out[i], second[i]);
      else
        out[i] = maker(out[i]);
  } else {
    const ImageShape runs = maker.runs();
    for (std::int64_t image = 0; image < a.images; ++image)
      for (int h = 0; h < runs.h; ++h)
        for (int w = 0; w < runs.w; ++w, out += runs.c, second += runs.c)
          FillRun(maker, {a.image + image, h, w}, a, runs.c, out, second);
  }
}

template <class Maker>
constexpr FillKernel<Maker> KernelOf() {
  if constexpr (Moves<Maker>())
    return nullptr;
  else
    return FillValues<Maker>;
}
template <class... Specs>
constexpr ValueKernels TableOf(const std::tuple<FillKernels<Specs>...>*) {
  return {FillKernels<Specs>{KernelOf<MakerOfY<Specs>>(), KernelOf<MakerOfDx<Specs>>(),
                             KernelOf<decltype(MakerOfDwOrNone<Specs>())>()}...};
}

}  // namespace

constexpr ValueKernels kValueTable = TableOf(static_cast<const ValueKernels*>(nullptr));

}  // namespace ada::backend::cpu::ADA_ISA
