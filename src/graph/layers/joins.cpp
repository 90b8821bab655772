// Layers with several inputs: add.
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

}  // namespace

std::vector<LayerKind> JoinKinds() {
  return {
      {.name = backend::AddSpec::kKind,
       .joins = true,
       .infer = InferAdd,
       .hands_gradient_on = true,
       .chain = ChainPart::kSum,
       .spec = PlainSpec<backend::AddSpec>},
  };
}

}  // namespace ada::graph
