// Layers that are defined once for all backends, all of them: functions of each value alone
// (activations.h), dropout, values times a factor of their image (stochastic depth) or of their
// channel (channel scale, prelu, affine); position embedding, class token, rope (layer_specs.h);
// and by moves.h those that move values.
#pragma once
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "backend/activations.h"
#include "backend/formulas.h"
#include "backend/layer_specs.h"
#include "backend/values/layer_values.h"
#include "backend/values/moves.h"

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

// x plus what its place has, the same in every image.
struct AddedToImage {
  static constexpr Makes kMakes = Makes::kRuns;
  ADA_VALUE ImageShape runs() const { return image; }
  ADA_VALUE auto Run(const RunIndex&, const RandomNumbers&) const {
    return [added = w](int c, float x) ADA_INLINED { return x + added[c]; };
  }
  ImageShape image;
  const float* w = nullptr;
};
template <>
struct LayerValues<PositionEmbeddingSpec> {
  using Spec = PositionEmbeddingSpec;
  static AddedToImage Y(const Spec& spec, const Pass&) {
    return {WholeImage(spec.x.shape), spec.w.f32()};
  }
  static PartOfRuns Dx(const Spec& spec) { return PartOf(spec.y.shape, spec.x.shape, 1, 0); }
  // w may have more positions than y: beyond those of y, dw is 0.
  static std::int64_t ImageSums(const Spec& spec) { return spec.y.shape.per_image(); }
};

// The values of w in front of those of x, image by image.
struct AfterFirst {
  static constexpr Makes kMakes = Makes::kGathers;
  ADA_VALUE ImageShape runs() const { return {1, positions + 1, channels}; }
  template <class Input>
  ADA_VALUE auto Run(const RunIndex& at, const Input& x) const {
    const std::int64_t from = (at.image * positions + at.w - 1) * channels;
    return [=, first = at.w == 0, token = w](int c)
               ADA_INLINED { return first ? token[c] : x[from + c]; };
  }
  int positions = 1, channels = 1;  // of x
  const float* w = nullptr;
};
template <>
struct LayerValues<ClassTokenSpec> {
  using Spec = ClassTokenSpec;
  static AfterFirst Y(const Spec& spec, const Pass&) {
    const Shape& x = spec.x.shape;
    return {static_cast<int>(x.h * x.w), static_cast<int>(x.c), spec.w.f32()};
  }
  static PartOfRuns Dx(const Spec& spec) {
    return PartOf(spec.y.shape, spec.x.shape, 1, spec.y.shape.c);
  }
  static std::int64_t ImageSums(const Spec& spec) { return spec.y.shape.c; }
};

// Pairs of a head's values rotated by the angles of their position, or with sign -1 by the negated
// angles. A run is a whole head of a position if the values of a pair are adjacent (`beside`);
// otherwise a part of one: first values of pairs, second values, or values not rotated.
struct Turned {
  static constexpr Makes kMakes = Makes::kGathers;
  ADA_VALUE ImageShape runs() const { return {positions, heads * (width / run), run}; }
  template <class Input>
  ADA_VALUE auto Run(const RunIndex& at, const Input& x) const {
    const int in_head = at.w % (width / run) * run;
    const bool second = in_head >= half;
    const float* cos = table + std::int64_t{2} * at.h * half + (second ? in_head - half : in_head);
    const std::int64_t from = OffsetOf(runs(), at), other = second ? from - half : from + half;
    return [=, sin = cos + half, turned = 2 * half - in_head, mixed = beside,
            turn = second ? sign : -sign](int c) ADA_INLINED {
      if (!mixed)
        return turned > 0 ? x[from + c] * cos[c] + x[other + c] * (turn * sin[c]) : x[from + c];
      if (c >= turned) return x[from + c];
      const float s = (c % 2 == 0 ? turn : -turn) * sin[c / 2];
      return x[from + c] * cos[c / 2] + x[from + (c ^ 1)] * s;
    };
  }
  int positions = 1, heads = 1, width = 1, half = 0;  // half: pairs of a head
  int run = 1;  // half and width are multiples of it, where not `beside`
  bool beside = false;
  float sign = 1;
  const float* table = nullptr;  // [positions, 2, half]: cosines, sines
};
template <>
struct LayerValues<RopeSpec> {
  static Turned Y(const RopeSpec& spec, const Pass&) { return Of(spec, 1); }
  static Turned Dx(const RopeSpec& spec) { return Of(spec, -1); }
  static Turned Of(const RopeSpec& spec, float sign) {
    const Shape& y = spec.y.shape;
    Turned turned;
    turned.positions = static_cast<int>(y.h * y.w), turned.heads = spec.heads;
    turned.width = static_cast<int>(y.c / spec.heads), turned.half = spec.rotary / 2;
    turned.run = spec.interleaved ? turned.width : std::gcd(turned.half, turned.width);
    turned.beside = spec.interleaved, turned.sign = sign;
    return turned;
  }
  // Angles in double, cosines and sines rounded to fp32 once: backends read the same table.
  static std::vector<float> Table(const RopeSpec& spec) {
    const auto half = static_cast<std::size_t>(spec.rotary / 2);
    const std::int64_t positions = spec.y.shape.h * spec.y.shape.w;
    std::vector<float> table(static_cast<std::size_t>(positions) * 2 * half);
    for (std::size_t i = 0; i < half; ++i) {
      const double turn = std::pow(spec.base, -2.0 * static_cast<double>(i) / spec.rotary);
      for (std::int64_t t = 0; t < positions; ++t) {
        const double angle = static_cast<double>(t) * turn;
        float* of_position = table.data() + static_cast<std::size_t>(t) * 2 * half;
        of_position[i] = static_cast<float>(std::cos(angle));
        of_position[half + i] = static_cast<float>(std::sin(angle));
      }
    }
    return table;
  }
};

// A tuple of Each<Spec> for those specs of a variant that have LayerValues. The CPU backend
// makes its table of kernels from it, so that a layer added to values/ is in it
// automatically.
template <template <class> class Each, class Variant>
struct ValueLayersOf;
template <template <class> class Each, class... Specs>
struct ValueLayersOf<Each, std::variant<Specs...>> {
  using Type = decltype(std::tuple_cat(
      std::declval<
          std::conditional_t<HasValues<Specs>, std::tuple<Each<Specs>>, std::tuple<>>>()...));
};
template <template <class> class Each>
using ForValueLayers = typename ValueLayersOf<Each, OpSpec>::Type;

// A backend's op of the layer, ValueOp<Spec>(context, spec); null where it has no LayerValues.
template <template <class> class ValueOp, class Context>
std::unique_ptr<Op> MakeOpOfValues(const Context& context, const OpSpec& spec) {
  return std::visit(
      [&](const auto& s) -> std::unique_ptr<Op> {
        using Spec = std::decay_t<decltype(s)>;
        if constexpr (HasValues<Spec>)
          return std::make_unique<ValueOp<Spec>>(context, s);
        else
          return nullptr;
      },
      spec);
}

// --- Members that not every spec has ---

template <class Spec>
RoundingStyle StyleOfY(const Spec& spec) {
  if constexpr (requires { spec.y_style; }) return spec.y_style;
  return {};
}
template <class Spec>
TensorStats* StatsOfY(const Spec& spec) {
  if constexpr (requires { spec.y_stats; }) return spec.y_stats;
  return nullptr;
}
// Whether dw has one value for each channel of x.
template <class Spec>
bool SumsByChannel(const Spec& spec) {
  return spec.w.shape.c == spec.x.shape.c;
}

// Make the makers, with the table in a backend's memory. `table` points to what
// LayerValues<Spec>::Table returned; it is not read if a layer has none.
template <class Spec>
auto YOf(const Spec& spec, const Pass& pass, [[maybe_unused]] const float* table) {
  auto maker = LayerValues<Spec>::Y(spec, pass);
  if constexpr (HasTable<Spec>) maker.table = table;
  return maker;
}
template <class Spec>
auto DxOf(const Spec& spec, [[maybe_unused]] const float* table) {
  auto maker = LayerValues<Spec>::Dx(spec);
  if constexpr (HasTable<Spec>) maker.table = table;
  return maker;
}
template <class Spec>
using MakerOfY =
    decltype(LayerValues<Spec>::Y(std::declval<const Spec&>(), std::declval<const Pass&>()));
template <class Spec>
using MakerOfDx = decltype(LayerValues<Spec>::Dx(std::declval<const Spec&>()));
// Whether input and output of a layer that only moves values have the same format.
template <class Spec>
bool MovesWithinFormats(const Spec& spec) {
  const Tensor &dx = spec.dx.tensor, &dy = spec.dy.tensor;
  const bool y = spec.x.format == spec.y.format && spec.x.storage == spec.y.storage;
  const bool back = !spec.dx || (dx.format == dy.format && dx.storage == dy.storage);
  return (y || !Moves<MakerOfY<Spec>>()) && (back || !Moves<MakerOfDx<Spec>>());
}

}  // namespace ada::backend
