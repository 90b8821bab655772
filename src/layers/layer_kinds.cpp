// Joins the tables of all families of layer kinds into one, and has what they share: checks, and
// windows that slide over height and width.
#include <algorithm>

#include "error.h"
#include "io/text.h"
#include "layers/layer_kind.h"

namespace ada::layers {
namespace {

using Extent = std::array<std::int64_t, 2>;

}  // namespace

const std::vector<LayerKind>& LayerKinds() {
  static const std::vector<LayerKind> kinds = [] {
    std::vector<LayerKind> all;
    for (const auto& family : {MatmulKinds(), NormKinds(), ActivationKinds(), PoolKinds(),
                               JoinKinds(), SequenceKinds(), OtherKinds()}) {
      all.insert(all.end(), family.begin(), family.end());
    }
    return all;
  }();
  return kinds;
}

const LayerKind* FindLayerKind(const std::string& name) {
  const std::vector<LayerKind>& kinds = LayerKinds();
  const auto found = std::find_if(kinds.begin(), kinds.end(),
                                  [&](const LayerKind& kind) { return name == kind.name; });
  return found == kinds.end() ? nullptr : &*found;
}

void KeepShape(LayerKeys&, LayerShapes& shapes) { shapes.output = shapes.input(); }

void Require(bool condition, const std::string& message) {
  if (!condition) throw ConfigError(message);
}

void RequireSize(const Shape& shape, const std::string& tensor) {
  // A double, because a product of 64-bit sizes could overflow before it is compared.
  constexpr double kMost = 0x1p40;
  const double values = static_cast<double>(shape.n) * static_cast<double>(shape.h) *
                        static_cast<double>(shape.w) * static_cast<double>(shape.c);
  Require(values <= kMost, tensor + " would have " + ShortestText(values) +
                               " values, expected at most 2^40; use fewer channels or features, or "
                               "smaller images");
}

void CheckWindow(const LayerKeys& keys) {
  for (int d = 0; d < 2; ++d) {
    Require(keys.kernel[d] >= 1 && keys.stride[d] >= 1 && keys.dilation[d] >= 1,
            "kernel, stride and dilation must be at least 1");
    Require(keys.padding[d] >= 0, "padding must not be negative");
  }
}

// With dilation a window extends over `effective` positions of the padded input.
Shape Slide(const LayerKeys& keys, const Shape& input, std::int64_t channels, bool ceil) {
  CheckWindow(keys);
  const Extent size = {input.h, input.w};
  Extent effective, padded;
  for (int d = 0; d < 2; ++d) {
    effective[d] = std::int64_t{keys.dilation[d]} * (keys.kernel[d] - 1) + 1;
    padded[d] = size[d] + 2 * std::int64_t{keys.padding[d]};
  }
  Extent least = effective;  // the rest of a last window may lie beyond the input
  for (int d = 0; ceil && d < 2; ++d) least[d] -= keys.stride[d] - 1;
  if (least[0] > padded[0] || least[1] > padded[1]) {
    const bool dilated = effective != Extent{keys.kernel[0], keys.kernel[1]};
    throw ConfigError("kernel " + PairText(keys.kernel) +
                      (dilated ? " (" + PairText(effective) + " with its dilation)" : "") +
                      " is larger than the padded input " + PairText(padded) + " (input " +
                      ToString(input) + ", padding " + PairText(keys.padding) + ")");
  }
  Extent windows;
  for (int d = 0; d < 2; ++d) {
    const std::int64_t stride = keys.stride[d], rest = padded[d] - effective[d];
    windows[d] = (rest + (ceil ? stride - 1 : 0)) / stride + 1;
    // PyTorch drops a last window that would begin in the padding after the input.
    if (ceil && (windows[d] - 1) * stride >= size[d] + keys.padding[d]) --windows[d];
  }
  const Shape output{1, windows[0], windows[1], channels};
  RequireSize(output, "its output");
  return output;
}

Shape SlideBack(const LayerKeys& keys, const Shape& input, std::int64_t channels) {
  CheckWindow(keys);
  const Extent size = {input.h, input.w};
  Extent whole, output;
  for (int d = 0; d < 2; ++d) {
    whole[d] = (size[d] - 1) * keys.stride[d] +
               std::int64_t{keys.dilation[d]} * (keys.kernel[d] - 1) + 1 + keys.output_padding[d];
    output[d] = whole[d] - 2 * std::int64_t{keys.padding[d]};
  }
  Require(output[0] >= 1 && output[1] >= 1, "padding " + PairText(keys.padding) +
                                                " leaves nothing of an output of " +
                                                PairText(whole) + " (input " + ToString(input) +
                                                ", kernel " + PairText(keys.kernel) + ")");
  const Shape shape{1, output[0], output[1], channels};
  RequireSize(shape, "its output");
  return shape;
}

}  // namespace ada::layers
