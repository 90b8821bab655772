// Layers that belong to no other family: flatten, dropout, stochastic_depth, shortcut, slice,
// upsample, pixel_shuffle, scale, external.
#include "error.h"
#include "layers/layer_kind.h"
#include "number/random.h"

namespace ada::layers {
namespace {

void InferFlatten(LayerKeys&, LayerShapes& shapes) {
  shapes.output = {1, 1, 1, shapes.input().numel()};
}

void InferDropout(LayerKeys& keys, LayerShapes& shapes) {
  Require(keys.rate >= 0 && keys.rate < 1, "rate must be at least 0 and less than 1");
  KeepShape(keys, shapes);
}

// He et al. (2016), option A: every stride-th pixel, and zeros in the channels that are added.
void InferShortcut(LayerKeys& keys, LayerShapes& shapes) {
  const Shape& in = shapes.input();
  CheckWindow(keys);
  Require(keys.channels >= in.c, "a shortcut only adds channels: input " + ToString(in) +
                                     ", channels " + std::to_string(keys.channels));
  shapes.output = {1, (in.h + keys.stride[0] - 1) / keys.stride[0],
                   (in.w + keys.stride[1] - 1) / keys.stride[1], keys.channels};
}

void InferSlice(LayerKeys& keys, LayerShapes& shapes) {
  const Shape& in = shapes.input();
  Require(std::int64_t{keys.first} + keys.channels <= in.c,
          "channels " + std::to_string(keys.first) + " to " +
              std::to_string(std::int64_t{keys.first} + keys.channels - 1) + " of an input " +
              ToString(in) + ", whose last one is " + std::to_string(in.c - 1));
  shapes.output = {1, in.h, in.w, keys.channels};
}
backend::OpSpec SliceSpecOf(const OpArguments& op) {
  auto spec = SpecOf<backend::SliceSpec>(op);
  spec.first = op.keys.first;
  return spec;
}

// Only recorded runs have this kind: `config/` may read it, but no network can be built with it.
void RefuseExternal(LayerKeys&, LayerShapes&) {
  throw ConfigError(
      "kind external: a layer of another program, of which ada-train knows the name alone; such "
      "runs can be read, not trained");
}

std::vector<ParameterSpec> UnknownParameters(const LayerKeys&, const LayerShapes&) { return {}; }
backend::OpSpec NoSpec(const OpArguments& op) { throw InternalError(op.layer + ": has no op"); }

// The backward pass draws the mask again.
backend::OpSpec DropoutSpecOf(const OpArguments& op) {
  auto spec = SpecOf<backend::DropoutSpec>(op);
  spec.rate = static_cast<float>(op.keys.rate);
  spec.stream = StreamId(op.layer);
  return spec;
}

backend::OpSpec StochasticDepthSpecOf(const OpArguments& op) {
  auto spec = SpecOf<backend::StochasticDepthSpec>(op);
  spec.rate = static_cast<float>(op.keys.rate);
  spec.batch = op.keys.mode == "batch";
  spec.stream = StreamId(op.layer);
  return spec;
}

void InferUpsample(LayerKeys& keys, LayerShapes& shapes) {
  const Shape& in = shapes.input();
  shapes.output = {1, in.h * keys.scale, in.w * keys.scale, in.c};
  RequireSize(shapes.output, "its output");
}
// Nearest copies values and rounds nothing; bilinear computes means and rounds them.
bool IsBilinear(const LayerKeys& keys) { return keys.mode == "bilinear"; }
KeyProblem CheckUpsample(const LayerKeys& keys) {
  if (!keys.align_corners || IsBilinear(keys)) return {};
  return {"align_corners", "belongs to mode: bilinear alone"};
}
backend::OpSpec UpsampleSpecOf(const OpArguments& op) {
  if (IsBilinear(op.keys)) {
    auto spec = SpecOf<backend::BilinearSpec>(op);
    spec.align_corners = op.keys.align_corners;
    return spec;
  }
  auto spec = SpecOf<backend::UpsampleSpec>(op);
  spec.scale = op.keys.scale;
  return spec;
}

void InferPixelShuffle(LayerKeys& keys, LayerShapes& shapes) {
  const Shape& in = shapes.input();
  const std::int64_t scale = keys.scale, block = scale * scale;
  Require(in.c % block == 0, "the input's channels " + std::to_string(in.c) + " (input " +
                                 ToString(in) + ") must be a multiple of scale^2, " +
                                 std::to_string(block));
  shapes.output = {1, in.h * scale, in.w * scale, in.c / block};
}
backend::OpSpec PixelShuffleSpecOf(const OpArguments& op) {
  auto spec = SpecOf<backend::PixelShuffleSpec>(op);
  spec.scale = op.keys.scale;
  return spec;
}

}  // namespace

std::vector<LayerKind> OtherKinds() {
  return {
      {.name = backend::FlattenSpec::kKind,
       .infer = InferFlatten,
       .positions = Positions::kNone,
       .rounds_output = false,
       .spec = PlainSpec<backend::FlattenSpec>},
      {.name = backend::DropoutSpec::kKind,
       .keys = {"rate"},
       .infer = InferDropout,
       .takes_amax_of_dy = true,
       .spec = DropoutSpecOf},
      {.name = backend::StochasticDepthSpec::kKind,
       .keys = {"rate", "mode"},
       .modes = {"row", "batch"},
       .infer = InferDropout,
       .spec = StochasticDepthSpecOf},
      {.name = backend::UpsampleSpec::kKind,
       .keys = {"scale", "mode", "align_corners"},
       .modes = {"nearest", "bilinear"},
       .check = CheckUpsample,
       .infer = InferUpsample,
       .rounds_output_by = IsBilinear,
       .rounds_gradient = [](const LayerKeys& keys) { return keys.scale > 1 || IsBilinear(keys); },
       .autocast_fp32 = true,
       .spec = UpsampleSpecOf},
      {.name = backend::PixelShuffleSpec::kKind,
       .keys = {"scale"},
       .infer = InferPixelShuffle,
       .rounds_output = false,
       .spec = PixelShuffleSpecOf},
      {.name = backend::ShortcutSpec::kKind,
       .keys = {"channels", "stride"},
       .required = {"channels"},
       .infer = InferShortcut,
       .rounds_output = false,
       .spec = PlainSpec<backend::ShortcutSpec>},
      {.name = backend::SliceSpec::kKind,
       .keys = {"channels", "first"},
       .required = {"channels"},
       .infer = InferSlice,
       .rounds_output = false,
       .spec = SliceSpecOf},
      // The cast of the paper, at a boundary between formats.
      {.name = backend::ScaleSpec::kKind,
       .infer = KeepShape,
       .chooses_scale = true,
       .spec = PlainSpec<backend::ScaleSpec>},
      // A layer of a run that another program recorded: it has a name and perhaps weights, and
      // passes S on.
      {.name = "external",
       .infer = RefuseExternal,
       .parameters = UnknownParameters,
       .spec = NoSpec},
  };
}

}  // namespace ada::layers
