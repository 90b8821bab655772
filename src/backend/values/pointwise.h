// Functions of each value alone (activations.h), and dropout.
#pragma once
#include <cstdint>

#include "backend/values/layer_values.h"

namespace ada::backend {

// y and dx of a layer that applies one of activations.h to every value.
template <class Function>
struct FunctionValue {
  static constexpr Makes kMakes = Makes::kEach;
  ADA_VALUE float operator()(float x) const { return function.Value(x); }
  Function function;
};
template <class Function>
struct FunctionSlope {
  static constexpr Makes kMakes = Makes::kEach;
  static constexpr int kInputs = 2;
  ADA_VALUE float operator()(float dy, float x) const { return DxOf(function, x, dy); }
  Function function;
};
template <class Function>
struct LayerValues<ActivationSpec<Function>> {
  using Spec = ActivationSpec<Function>;
  static FunctionValue<Function> Y(const Spec& spec, const Pass&) { return {spec.function}; }
  static FunctionSlope<Function> Dx(const Spec& spec) { return {spec.function}; }
};

// x / (1 - rate) where the value's random number is not below the rate, else 0.
struct KeptValue {
  static constexpr Makes kMakes = Makes::kEach;
  static constexpr bool kRandom = true;
  ADA_VALUE float operator()(float x, float number) const {
    return number >= rate ? x * factor : 0.0f;
  }
  float rate = 0, factor = 1;
  std::uint64_t stream = 0;
};
inline KeptValue Keeping(float rate, std::uint64_t stream) {
  return {rate, 1.0f / (1.0f - rate), stream};
}
template <>
struct LayerValues<DropoutSpec> {
  // In evaluation the rate is 0, which keeps every value and multiplies it by exactly 1. Backward
  // draws the numbers of the forward pass again, so that no mask is stored.
  static KeptValue Y(const DropoutSpec& spec, const Pass& pass) {
    return Keeping(pass.training ? spec.rate : 0, spec.stream);
  }
  static KeptValue Dx(const DropoutSpec& spec) { return Keeping(spec.rate, spec.stream); }
};

}  // namespace ada::backend
