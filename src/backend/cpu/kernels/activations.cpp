// Functions of values one by one (activations.h), as loops that the compiler turns into vectors.
#include "backend/activations.h"

#include "backend/cpu/kernels/functions.h"

namespace ada::backend::cpu::ADA_ISA {
namespace {

// The copy of `given` lets the compiler keep its members in registers: it sees that x does not
// alias them.
template <class Function>
void ActivationValue(const Function& given, float* x, std::int64_t n) {
  const Function function = given;
  for (std::int64_t i = 0; i < n; ++i) x[i] = function.Value(x[i]);
}
// dy becomes dx in place, of the x before the function.
template <class Function>
void ActivationGradient(const Function& given, const float* __restrict x, float* __restrict dy,
                        std::int64_t n) {
  const Function function = given;
  for (std::int64_t i = 0; i < n; ++i) dy[i] = DxOf(function, x[i], dy[i]);
}

// One pair of loops for each function of the list in activations.h; a function that is added there
// needs nothing here.
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
