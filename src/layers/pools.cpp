// Layers that compute one value from each window: max_pool, avg_pool, adaptive_avg_pool,
// global_avg_pool; and max_unpool, which puts it back.
#include <algorithm>

#include "layers/layer_kind.h"

namespace ada::layers {
namespace {

// As PyTorch demands: a window with more padding could lie outside of the image.
KeyProblem CheckPadding(const LayerKeys& keys) {
  for (std::size_t i = 0; i < 2; ++i) {
    if (2 * keys.padding[i] <= keys.kernel[i]) continue;
    return {"padding", "at most half the kernel; got " + std::to_string(keys.padding[i]) + " of " +
                           std::to_string(keys.kernel[i])};
  }
  return {};
}

void InferPool(LayerKeys& keys, LayerShapes& shapes) {
  shapes.output = Slide(keys, shapes.input(), shapes.input().c, keys.ceil_mode);
  Require(keys.dilation == std::array<int, 2>{1, 1}, "pooling knows no dilation");
  Require(keys.padding[0] <= keys.kernel[0] / 2 && keys.padding[1] <= keys.kernel[1] / 2,
          "padding " + PairText(keys.padding) + " is more than half of kernel " +
              PairText(keys.kernel));
}

// One window, the whole image: the keys are filled so that the op is an avg_pool.
void InferGlobalPool(LayerKeys& keys, LayerShapes& shapes) {
  const Shape& in = shapes.input();
  keys.kernel = keys.stride = {static_cast<int>(in.h), static_cast<int>(in.w)};
  keys.padding = {0, 0};
  shapes.output = {1, 1, 1, in.c};
}

backend::OpSpec AvgPoolSpecOf(const OpArguments& op) {
  auto spec = SpecOf<backend::AvgPoolSpec>(op);
  spec.count_padding = op.keys.count_include_pad;
  return spec;
}

backend::OpSpec MaxPoolSpecOf(const OpArguments& op) {
  auto spec = SpecOf<backend::MaxPoolSpec>(op);
  spec.positions = op.positions;
  return spec;
}

// If the output's size divides the input's, all windows are of one size.
void InferAdaptivePool(LayerKeys& keys, LayerShapes& shapes) {
  const Shape& in = shapes.input();
  shapes.output = {1, keys.size[0], keys.size[1], in.c};
  RequireSize(shapes.output, "its output");
  const bool alike = in.h % keys.size[0] == 0 && in.w % keys.size[1] == 0;
  keys.kernel = {1, 1};
  if (alike)
    keys.kernel = {static_cast<int>(in.h) / keys.size[0], static_cast<int>(in.w) / keys.size[1]};
  keys.stride = keys.kernel, keys.padding = {0, 0};
}
backend::OpSpec AdaptivePoolSpecOf(const OpArguments& op) {
  auto spec = SpecOf<backend::AvgPoolSpec>(op);
  const Shape &in = op.x[0].shape, &out = op.y.shape;
  spec.adaptive = in.h % out.h != 0 || in.w % out.w != 0;
  return spec;
}

// Where windows overlap, a value of dx is a sum of several. To be called after infer has filled in
// kernel and stride.
bool WindowsOverlap(const LayerKeys& keys) {
  return keys.kernel[0] > keys.stride[0] || keys.kernel[1] > keys.stride[1];
}

// Gives the size of the pool's input, or (whole) the one at which its windows would be complete.
void InferUnpool(LayerKeys& keys, LayerShapes& shapes) {
  const LayerShapes::Pool& pool = *shapes.pool;
  const Shape &in = shapes.input(), &pooled = pool.output;
  keys.kernel = pool.keys.kernel, keys.stride = pool.keys.stride;
  keys.padding = pool.keys.padding;
  const std::string of_pool = "pool " + keys.pool;
  Require(!WindowsOverlap(keys), of_pool + "'s windows overlap: kernel " + PairText(keys.kernel) +
                                     ", stride " + PairText(keys.stride) +
                                     "; two maxima could go back to one place");
  Require(in.c == pooled.c,
          "channels differ: input " + ToString(in) + ", " + of_pool + " gave " + ToString(pooled));
  if (!keys.whole) {
    Require(in.h >= pooled.h && in.w >= pooled.w, "input " + ToString(in) +
                                                      " is smaller than what " + of_pool +
                                                      " gave, " + ToString(pooled));
    shapes.output = pool.input;
    return;
  }
  Require(keys.padding == std::array<int, 2>{0, 0},
          "whole: " + of_pool + " has padding, whose windows are never whole");
  shapes.output = {1, (std::min(in.h, pooled.h) - 1) * keys.stride[0] + keys.kernel[0],
                   (std::min(in.w, pooled.w) - 1) * keys.stride[1] + keys.kernel[1], in.c};
}
backend::OpSpec MaxUnpoolSpecOf(const OpArguments& op) {
  auto spec = SpecOf<backend::MaxUnpoolSpec>(op);
  spec.positions = op.positions, spec.pooled = op.pooled;
  return spec;
}

}  // namespace

std::vector<LayerKind> PoolKinds() {
  return {
      {.name = backend::MaxPoolSpec::kKind,
       .keys = {"kernel", "stride", "padding", "ceil_mode"},
       .required = {"kernel"},
       .stride_is_kernel = true,
       .check = CheckPadding,
       .infer = InferPool,
       .rounds_output = false,
       .rounds_gradient = WindowsOverlap,
       .keeps_input = true,
       .keeps_output = true,
       .gives_positions = true,
       .spec = MaxPoolSpecOf},
      {.name = backend::MaxUnpoolSpec::kKind,
       .keys = {"pool", "whole"},
       .required = {"pool"},
       .infer = InferUnpool,
       .rounds_output = false,
       .autocast_cpu_fp32 = true,
       .reads_positions = true,
       .spec = MaxUnpoolSpecOf},
      {.name = backend::AvgPoolSpec::kKind,
       .keys = {"kernel", "stride", "padding", "ceil_mode", "count_include_pad"},
       .required = {"kernel"},
       .stride_is_kernel = true,
       .check = CheckPadding,
       .infer = InferPool,
       .spec = AvgPoolSpecOf},
      {.name = "adaptive_avg_pool",
       .keys = {"size"},
       .required = {"size"},
       .infer = InferAdaptivePool,
       .positions = Positions::kNone,
       .spec = AdaptivePoolSpecOf},
      {.name = "global_avg_pool",
       .infer = InferGlobalPool,
       .positions = Positions::kNone,
       .spec = PlainSpec<backend::AvgPoolSpec>},
  };
}

}  // namespace ada::layers
