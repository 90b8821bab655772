// Looks the numbers of a plan up: each tensor is a view of the block at its buffer's offset.
#include "error.h"
#include "graph/builder.h"

namespace ada::graph {

// The shape comes from the network, for the largest batch; format and storage from the caller,
// because a value and its gradient may be kept differently.
Tensor Bindings::Describe(int value, const TensorStorage& stored_as) const {
  Tensor tensor;
  tensor.shape = network->shape(value);
  tensor.shape.n = images;
  tensor.format = stored_as.format;
  tensor.storage = stored_as.storage;
  return tensor;
}

Tensor Bindings::View(int value, int buffer, const TensorStorage& stored_as) const {
  Tensor tensor = Describe(value, stored_as);
  tensor.data = block + offsets[buffer];
  return tensor;
}

Tensor Bindings::Unstored(int value) const { return Describe(value, storage->values[value]); }

// An ADA_CHECK fails for a value inside a chain, which is in no buffer: layers that read it use
// Unstored and recompute it.
Tensor Bindings::Value(int value) const {
  if (value == 0 && tokens) return tokens;
  const int buffer = plan->value_buffers[value];
  ADA_CHECK(buffer >= 0);
  return View(value, buffer, storage->values[value]);
}

// The tensor has the shape of the value, but only part of its channels where attention computes a
// gradient of queries, keys or values that come from one layer. Statistics and style are named
// after the writer: "loss" if that is not a node.
backend::Gradient Bindings::Grad(int index) const {
  if (index < 0) return {};
  const GradientPlan& gradient = plan->gradients[index];
  backend::Gradient result;
  result.tensor = View(gradient.value, gradient.buffer, gradient.stored_as);
  if (gradient.channels > 0) result.tensor.shape.c = gradient.channels;
  result.scale = scales.backend + gradient.scale;
  if (gradient.rounds) {
    const std::string layer = gradient.node == kLossNode ? "loss" : NameOf(gradient.node);
    LayerStats& layer_stats = stats.backend[gradient.node + 1];
    result.stats = &(layer_stats.*StatsOf(gradient.tensor));
    result.style = styles->Of(layer, gradient.tensor, gradient.stored_as);
  }
  if (gradient.moments) result.moments = moments.backend + index;
  result.all_moments = gradient.all_moments;
  result.amax_deferred = gradient.amax_deferred;
  return result;
}

backend::RoundingStyle Bindings::ValueStyle(int value) const {
  return styles->Of(value == 0 ? "input" : NameOf(value - 1), "y", storage->values[value]);
}

// Layers that only move values pass on the scale of their first input, so the search goes back to
// the layer that rounded.
const scaling::TensorScaler* Bindings::PerTensorScale(int value) const {
  while (value > 0 && !network->nodes[value - 1].rounds_output())
    value = network->nodes[value - 1].inputs[0];
  return ValueStyle(value).per_tensor_scale;
}

const scaling::TensorScaler* Bindings::GradientScale(int index) const {
  while (!plan->gradients[index].rounds && plan->gradients[index].came_from >= 0)
    index = plan->gradients[index].came_from;
  return Grad(index).style.per_tensor_scale;
}

TensorStats* Bindings::ValueStats(int value) const {
  return training ? &stats.backend[value].y : nullptr;
}

}  // namespace ada::graph
