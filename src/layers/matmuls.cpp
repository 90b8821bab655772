// Layers that multiply their input by a weight: conv2d, conv_transpose2d, linear.
#include "layers/layer_kind.h"

namespace ada::layers {
namespace {

// --- Shapes ---

// Values of the input that one output value sums.
std::int64_t WindowSize(const LayerKeys& keys, const Shape& input) {
  return std::int64_t{keys.kernel[0]} * keys.kernel[1] * input.c / keys.groups;
}

// The layer itself flattens a spatial input: its weight has the image's extent, so that its bytes
// are those of PyTorch's linear layer after a flatten.
Shape LinearWeight(const LayerKeys& keys, const LayerShapes& shapes) {
  const Shape& in = shapes.input();
  if (shapes.inputs[0].sequence) return {keys.features, 1, 1, in.c};
  return {keys.features, in.h, in.w, in.c};
}

// Throws ConfigError where groups do not divide the channels of both sides.
void CheckChannels(const LayerKeys& keys, const LayerShapes& shapes) {
  const std::int64_t in = shapes.input().c, out = keys.channels;
  Require(out >= 1, "channels must be at least 1");
  Require(keys.groups >= 1, "groups must be at least 1");
  Require(in % keys.groups == 0 && out % keys.groups == 0,
          "groups " + std::to_string(keys.groups) + " must divide the input's channels " +
              std::to_string(in) + " (input " + ToString(shapes.input()) + ") and the output's " +
              std::to_string(out));
}

void InferConv2d(LayerKeys& keys, LayerShapes& shapes) {
  CheckChannels(keys, shapes);
  shapes.output = Slide(keys, shapes.input(), keys.channels);
  shapes.mflop = 2e-6 * static_cast<double>(shapes.output.numel()) *
                 static_cast<double>(WindowSize(keys, shapes.input()));
}

// Counted like the convolution from y to x that it transposes: one window per input value.
void InferConvTranspose2d(LayerKeys& keys, LayerShapes& shapes) {
  CheckChannels(keys, shapes);
  shapes.output = SlideBack(keys, shapes.input(), keys.channels);
  shapes.mflop = 2e-6 * static_cast<double>(shapes.input().numel()) *
                 static_cast<double>(WindowSize(keys, shapes.output));
}

// In a sequence each position is mapped separately, otherwise all values of an image together.
void InferLinear(LayerKeys& keys, LayerShapes& shapes) {
  const Shape& in = shapes.input();
  const std::int64_t out = keys.features;
  Require(out >= 1, "features must be at least 1");
  shapes.output = {1, 1, 1, out};
  if (shapes.inputs[0].sequence) shapes.output = {1, in.h, in.w, out};
  shapes.mflop = 2e-6 * static_cast<double>(in.numel()) * static_cast<double>(out);
  if (!shapes.tied) return;
  const Shape own = LinearWeight(keys, shapes);
  Require(*shapes.tied == own,
          "weight_of " + keys.weight_of + ": its weight is [" + std::to_string(shapes.tied->n) +
              ", " + std::to_string(shapes.tied->per_image()) + "], needed is [" +
              std::to_string(own.n) + ", " + std::to_string(own.per_image()) + "]");
}

// --- Parameters ---

std::vector<ParameterSpec> WithBias(ParameterSpec weight, const LayerKeys& keys, std::int64_t out) {
  std::vector<ParameterSpec> parameters = {std::move(weight)};
  if (keys.bias) parameters.push_back({"bias", {out}, {1, 1, 1, out}});
  return parameters;
}

std::vector<ParameterSpec> Conv2dParameters(const LayerKeys& keys, const LayerShapes& shapes) {
  const std::int64_t in = shapes.input().c / keys.groups, out = keys.channels;
  const auto [height, width] = keys.kernel;
  return WithBias({"weight", {out, in, height, width}, {out, height, width, in}}, keys, out);
}

// PyTorch's order for transposed convolutions: input channels first.
std::vector<ParameterSpec> ConvTranspose2dParameters(const LayerKeys& keys,
                                                     const LayerShapes& shapes) {
  const std::int64_t in = shapes.input().c, out = keys.channels / keys.groups;
  const auto [height, width] = keys.kernel;
  return WithBias({"weight", {in, out, height, width}, {in, height, width, out}}, keys,
                  keys.channels);
}

std::vector<ParameterSpec> LinearParameters(const LayerKeys& keys, const LayerShapes& shapes) {
  const Shape weight = LinearWeight(keys, shapes);
  const ParameterSpec own = {"weight", {weight.n, weight.per_image()}, weight};
  return WithBias(own, keys, keys.features);
}

// A value of dx sums over the output channels of its group and over those window positions that the
// stride leaves. The authors' program counts all channels and the whole window.
Fans Conv2dFans(const LayerKeys& keys) {
  const double fan = static_cast<double>(keys.channels) * keys.kernel[0] * keys.kernel[1];
  const double shared = static_cast<double>(keys.stride[0]) * keys.stride[1] * keys.groups;
  return {fan, fan / shared};
}

// Every value of dx is a sum over the whole window.
Fans ConvTranspose2dFans(const LayerKeys& keys) {
  const double fan = static_cast<double>(keys.channels) * keys.kernel[0] * keys.kernel[1];
  return {fan, fan / keys.groups};
}

Fans LinearFans(const LayerKeys& keys) {
  const double fan = keys.features;
  return {fan, fan};
}

// --- Specs ---

// What the three kinds share: weight, bias, and the roundings of both and of operands.
template <class Spec>
Spec MatmulSpecOf(const OpArguments& op) {
  Spec spec = SpecOf<Spec>(op);
  spec.w = op.parameters[0].value;
  spec.dw = op.parameters[0].gradient;
  if (op.keys.bias) {
    spec.b = op.parameters[1].value;
    spec.db = op.parameters[1].gradient;
  }
  spec.y_moments = op.y_moments;
  spec.y_amax_deferred = op.y_amax_deferred;
  spec.w_format = op.w.format;
  spec.w_style = op.w.style;
  spec.w_stats = op.w.stats;
  spec.dw_format = op.dw.format;
  spec.dw_style = op.dw.style;
  spec.dw_stats = op.dw.stats;
  spec.x_per_tensor_scale = op.x_per_tensor_scales[0];
  spec.recomputed = op.recomputed;
  spec.adds_dw = op.adds_dw;
  spec.operands = op.operands;
  return spec;
}

template <class Spec>
backend::OpSpec ConvolutionSpecOf(const OpArguments& op) {
  auto spec = MatmulSpecOf<Spec>(op);
  spec.dilation = op.keys.dilation;
  spec.groups = op.keys.groups;
  return spec;
}

backend::OpSpec LinearSpecOf(const OpArguments& op) {
  return MatmulSpecOf<backend::LinearSpec>(op);
}

// --- Keys ---

KeyProblem CheckGroups(const LayerKeys& keys) {
  if (keys.channels % keys.groups == 0) return {};
  return {"groups", "must divide channels, " + std::to_string(keys.channels)};
}

// PyTorch also accepts values below the dilation; they would add rows that no window reaches.
KeyProblem CheckTransposed(const LayerKeys& keys) {
  for (std::size_t i = 0; i < 2; ++i) {
    if (keys.output_padding[i] < keys.stride[i]) continue;
    return {"output_padding", "must be less than stride, " + std::to_string(keys.stride[i]) +
                                  "; got " + std::to_string(keys.output_padding[i])};
  }
  return CheckGroups(keys);
}

}  // namespace

std::vector<LayerKind> MatmulKinds() {
  return {
      {.name = backend::Conv2dSpec::kKind,
       .keys = {"channels", "kernel", "stride", "padding", "dilation", "groups", "bias"},
       .required = {"channels", "kernel"},
       .check = CheckGroups,
       .infer = InferConv2d,
       .parameters = Conv2dParameters,
       .has_weight = true,
       .chooses_scale = true,
       .fans = Conv2dFans,
       .defers_amax = true,
       .keeps_input = true,
       .sums_channels = true,
       .spec = ConvolutionSpecOf<backend::Conv2dSpec>},
      {.name = backend::ConvTranspose2dSpec::kKind,
       .keys = {"channels", "kernel", "stride", "padding", "output_padding", "dilation", "groups",
                "bias"},
       .required = {"channels", "kernel"},
       .check = CheckTransposed,
       .infer = InferConvTranspose2d,
       .parameters = ConvTranspose2dParameters,
       .has_weight = true,
       .chooses_scale = true,
       .fans = ConvTranspose2dFans,
       .defers_amax = true,
       .keeps_input = true,
       .sums_channels = true,
       .spec = ConvolutionSpecOf<backend::ConvTranspose2dSpec>},
      {.name = backend::LinearSpec::kKind,
       .keys = {"features", "bias", "weight_of"},
       .required = {"features"},
       .infer = InferLinear,
       .parameters = LinearParameters,
       .has_weight = true,
       .chooses_scale = true,
       .fans = LinearFans,
       .defers_amax = true,
       .keeps_input = true,
       .spec = LinearSpecOf},
  };
}

}  // namespace ada::layers
