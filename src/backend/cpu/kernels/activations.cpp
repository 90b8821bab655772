// Functions of values one by one (activations.h), as loops that the compiler turns into vectors.
#include "backend/activations.h"

#include "backend/cpu/kernels/functions.h"

namespace ada::backend::cpu::ADA_ISA {
namespace {

template <class Function>
void ActivationValue(const Function& given, float* x, std::int64_t n) {
  const Function function = given;
  for (std::int64_t i = 0; i < n; ++i) x[i] = function.Value(x[i]);
}
template <class Function>
void ActivationGradient(const Function& given, const float* __restrict x, float* __restrict dy,
                        std::int64_t n) {
  const Function function = given;
  for (std::int64_t i = 0; i < n; ++i) dy[i] = DxOf(function, x[i], dy[i]);
}

template <class... Functions>
constexpr std::tuple<ActivationKernels<Functions>...> Table(
    const std::tuple<ActivationKernels<Functions>...>*) {
  return {
      ActivationKernels<Functions>{ActivationValue<Functions>, ActivationGradient<Functions>}...};
}

}  // namespace

constexpr ForActivations<ActivationKernels> kActivations =
    Table(static_cast<const ForActivations<ActivationKernels>*>(nullptr));

}  // namespace ada::backend::cpu::ADA_ISA
