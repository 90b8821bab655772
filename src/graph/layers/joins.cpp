// Layers with several inputs: add, concat.
#include "graph/layers/layer_kind.h"

namespace ada::graph {
namespace {

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

}  // namespace

std::vector<LayerKind> JoinKinds() {
  return {
      {.name = backend::AddSpec::kKind,
       .joins = true,
       .infer = InferAdd,
       .hands_gradient_on = true,
       .chain = ChainPart::kSum,
       .spec = PlainSpec<backend::AddSpec>},
      {.name = backend::ConcatSpec::kKind,
       .joins = true,
       .infer = InferConcat,
       .spec = PlainSpec<backend::ConcatSpec>},
  };
}

}  // namespace ada::graph
