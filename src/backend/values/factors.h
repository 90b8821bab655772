// Functions of each value alone (activations.h), dropout, and values times a factor of their image
// (stochastic depth) or of their channel (channel scale, prelu, affine).
#pragma once
#include <cstdint>

#include "backend/formulas.h"
#include "backend/values/layer_values.h"

namespace ada::backend {

// y and dx of a layer that applies one of activations.h to every value. Functions with a slope take
// long, and y and the factor of dy depend on x alone: a backend may look them up.
template <class Function>
struct FunctionValue {
  static constexpr Makes kMakes = Makes::kEach;
  static constexpr bool kLookedUp = HasSlope<Function>;
  ADA_VALUE float operator()(float x) const { return function.Value(x); }
  Function function;
};
template <class Function>
struct FunctionSlope {
  static constexpr Makes kMakes = Makes::kEach;
  static constexpr int kInputs = 2;
  static constexpr bool kLookedUp = HasSlope<Function>;
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
struct DropoutValue {
  static constexpr Makes kMakes = Makes::kEach;
  static constexpr bool kRandom = true;
  ADA_VALUE float operator()(float x, float number) const {
    return number >= rate ? x * factor : 0.0f;
  }
  float rate = 0, factor = 1;
  std::uint64_t stream = 0;
};
inline DropoutValue Keeping(float rate, std::uint64_t stream) {
  return {rate, 1.0f / (1.0f - rate), stream};
}
template <>
struct LayerValues<DropoutSpec> {
  // In evaluation the rate is 0, which keeps every value and multiplies it by exactly 1. Backward
  // draws the numbers of the forward pass again, so that no mask is stored.
  static DropoutValue Y(const DropoutSpec& spec, const Pass& pass) {
    return Keeping(pass.training ? spec.rate : 0, spec.stream);
  }
  static DropoutValue Dx(const DropoutSpec& spec) { return Keeping(spec.rate, spec.stream); }
};

// --- Factors ---

// x / (1 - rate) where the image's random number says so, else 0.
struct DroppedImageValue {
  static constexpr Makes kMakes = Makes::kRuns;
  ADA_VALUE ImageShape runs() const { return image; }
  ADA_VALUE auto Run(const RunIndex& at, const RandomNumbers& random) const {
    const float factor = ImageFactor(random.key, random.draw, random.first + at.image, rate, batch);
    // A dropped image is 0 even where x is infinite or NaN, which a product would keep.
    return [factor](int, float x) ADA_INLINED { return factor == 0 ? 0.0f : x * factor; };
  }
  ImageShape image;
  float rate = 0;
  bool batch = false;
  std::uint64_t stream = 0;
};
template <>
struct LayerValues<StochasticDepthSpec> {
  using Spec = StochasticDepthSpec;
  static DroppedImageValue Y(const Spec& spec, const Pass& pass) {
    return {WholeImage(spec.x.shape), pass.training ? spec.rate : 0, spec.batch, spec.stream};
  }
  static DroppedImageValue Dx(const Spec& spec) {
    return {WholeImage(spec.x.shape), spec.rate, spec.batch, spec.stream};
  }
};

// x * factor + offset by channel; no offset where it is null.
struct AffineValue {
  static constexpr Makes kMakes = Makes::kRuns;
  ADA_VALUE ImageShape runs() const { return pixels; }
  ADA_VALUE auto Run(const RunIndex&, const RandomNumbers&) const {
    return [f = factor, o = offset](int c, float x) ADA_INLINED {
      const float product = x * f[c];
      return o != nullptr ? product + o[c] : product;
    };
  }
  ImageShape pixels;
  const float *factor = nullptr, *offset = nullptr;
};
template <>
struct LayerValues<AffineSpec> {
  static AffineValue Y(const AffineSpec& spec, const Pass&) {
    return {ImageOf(spec.x.shape), spec.factor.f32(), spec.offset.f32()};
  }
  static AffineValue Dx(const AffineSpec& spec) {
    return {ImageOf(spec.x.shape), spec.factor.f32(), nullptr};
  }
};

// A term of the gradient of a channel's factor.
struct ProductTerm {
  static constexpr Makes kMakes = Makes::kEach;
  static constexpr int kInputs = 2;
  ADA_VALUE float operator()(float dy, float x) const { return dy * x; }
};
template <>
struct LayerValues<ChannelScaleSpec> {
  using Spec = ChannelScaleSpec;
  static AffineValue Y(const Spec& spec, const Pass&) { return Dx(spec); }
  static AffineValue Dx(const Spec& spec) { return {ImageOf(spec.x.shape), spec.w.f32(), nullptr}; }
  static ProductTerm Dw(const Spec&) { return {}; }
};

// Values, times the slope of their channel (or the one of all) where x is not positive.
struct SlopedValue {
  static constexpr Makes kMakes = Makes::kRuns;
  ADA_VALUE ImageShape runs() const { return pixels; }
  ADA_VALUE auto Run(const RunIndex&, const RandomNumbers&) const {
    return [w = slopes, step = slope_step](int c, float x)
               ADA_INLINED { return x > 0 ? x : x * w[c * step]; };
  }
  ImageShape pixels;
  const float* slopes = nullptr;
  int slope_step = 0;  // 0: one slope of all
};
// The same of dy, by the x that is stored; a NaN in x counts as not positive.
struct SlopedGradient : SlopedValue {
  static constexpr int kInputs = 2;
  ADA_VALUE auto Run(const RunIndex&, const RandomNumbers&) const {
    return [w = slopes, step = slope_step](int c, float dy, float x)
               ADA_INLINED { return x > 0 ? dy : dy * w[c * step]; };
  }
};
// A term of the gradient of a slope: where x is not positive y is x times the slope.
struct BelowTerm {
  static constexpr Makes kMakes = Makes::kEach;
  static constexpr int kInputs = 2;
  ADA_VALUE float operator()(float dy, float x) const { return x > 0 ? 0.0f : dy * x; }
};
template <>
struct LayerValues<PreluSpec> {
  static SlopedValue Y(const PreluSpec& spec, const Pass&) { return Of(spec); }
  static SlopedGradient Dx(const PreluSpec& spec) { return {Of(spec)}; }
  static BelowTerm Dw(const PreluSpec&) { return {}; }
  static SlopedValue Of(const PreluSpec& spec) {
    return {ImageOf(spec.x.shape), spec.w.f32(), spec.w.shape.c > 1 ? 1 : 0};
  }
};

}  // namespace ada::backend
