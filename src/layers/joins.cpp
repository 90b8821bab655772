// Layers with several inputs: add, concat, concat_boxes, multiply.
#include "layers/layer_kind.h"

namespace ada::layers {
namespace {

// Any number of inputs, of one shape.
void InferAdd(LayerKeys&, LayerShapes& shapes) {
  const LayerShapes::Input& first = shapes.inputs[0];
  for (const LayerShapes::Input& other : shapes.inputs) {
    Require(other.shape == first.shape, "shapes differ: " + ToString(first.shape) + " (" +
                                            first.name + ") and " + ToString(other.shape) + " (" +
                                            other.name + ")");
  }
  shapes.output = first.shape;
}

void InferConcat(LayerKeys&, LayerShapes& shapes) {
  const LayerShapes::Input& first = shapes.inputs[0];
  shapes.output = first.shape;
  shapes.output.c = 0;
  for (const LayerShapes::Input& other : shapes.inputs) {
    Require(other.shape.h == first.shape.h && other.shape.w == first.shape.w,
            "shapes differ in more than channels: " + ToString(first.shape) + " (" + first.name +
                ") and " + ToString(other.shape) + " (" + other.name + ")");
    shapes.output.c += other.shape.c;
  }
}

// Pixels hold whole boxes of `values` values.
void InferConcatBoxes(LayerKeys& keys, LayerShapes& shapes) {
  shapes.output = {1, 1, 0, keys.values};
  for (const LayerShapes::Input& input : shapes.inputs) {
    Require(input.shape.c % keys.values == 0, "values " + std::to_string(keys.values) +
                                                  " must divide the channels of each input; " +
                                                  input.name + " has " + ToString(input.shape));
    shapes.output.w += input.shape.numel() / keys.values;
  }
}

// A factor by channel ([1, 1, c] of an image) meets all pixels of the other input, whichever of the
// two it is: squeeze and excitation, gates.
void InferMultiply(LayerKeys&, LayerShapes& shapes) {
  Require(shapes.inputs.size() == 2,
          "multiply takes two `inputs`, found " + std::to_string(shapes.inputs.size()));
  const LayerShapes::Input &a = shapes.inputs[0], &b = shapes.inputs[1];
  const auto gates = [](const Shape& small, const Shape& large) {
    return small == Shape{1, 1, 1, large.c};
  };
  Require(a.shape == b.shape || gates(a.shape, b.shape) || gates(b.shape, a.shape),
          "shapes differ: " + ToString(a.shape) + " (" + a.name + ") and " + ToString(b.shape) +
              " (" + b.name + "); a factor has the other's shape or one value for each channel");
  shapes.output = gates(a.shape, b.shape) ? b.shape : a.shape;
}

bool Always(const LayerKeys&) { return true; }

}  // namespace

std::vector<LayerKind> JoinKinds() {
  return {
      {.name = backend::AddSpec::kKind,
       .joins = true,
       .infer = InferAdd,
       .hands_gradient_on = true,
       .chain = ChainPart::kSum,
       .spec = PlainSpec<backend::AddSpec>},
      // Its dx are slices of dy as they are: not rounded, as it joins.
      {.name = backend::ConcatSpec::kKind,
       .joins = true,
       .infer = InferConcat,
       .spec = PlainSpec<backend::ConcatSpec>},
      {.name = backend::ConcatBoxesSpec::kKind,
       .keys = {"values"},
       .joins = true,
       .least_inputs = 1,
       .infer = InferConcatBoxes,
       .spec = PlainSpec<backend::ConcatBoxesSpec>},
      {.name = backend::MultiplySpec::kKind,
       .joins = true,
       .infer = InferMultiply,
       .rounds_gradient = Always,
       .keeps_input = true,
       .spec = PlainSpec<backend::MultiplySpec>},
  };
}

}  // namespace ada::layers
