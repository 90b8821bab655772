// Single convolutions, linear layers and attention of a network, each distinct one once, and two
// ways to compute them: ours through backend.h, and oneDNN's f32 primitives of the same shape.
#pragma once
#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "number/tensor.h"

namespace ada::graph {
struct Network;
}

namespace ada::bench {

// A layer of a network over a whole batch. Attention has heads and no weight; its x are the
// queries, and its keys have `keys` positions.
struct Layer {
  Shape x, w, y;  // w: {out, kernel height, kernel width, in / groups}
  std::array<int, 2> stride = {1, 1}, padding = {0, 0}, dilation = {1, 1};
  int groups = 1;
  bool linear = false, bias = false;
  int heads = 0, kv_heads = 0;
  std::int64_t keys = 0;
  bool causal = false;
  bool data_gradient = true;  // false: it sees the images
  friend bool operator==(const Layer&, const Layer&) = default;

  bool attention() const { return heads > 0; }
  // "conv 3x3 32x32x16 > 32x32x16", "linear 64 > 10", "attention 4x32, 128 tokens"
  std::string Text() const;
  // Operations of a part, a multiply-add counted as 2. The forward pass of attention has two
  // products, which count masked pairs of tokens as well, and its backward pass four.
  double Flop(bool forward) const;
  // Bytes of a part's operands and its result, each once; `size`: bytes of a value of x, y and
  // their gradients (weights and their gradient are fp32).
  double Bytes(int size, bool forward) const;
};

struct Counted {
  Layer layer;
  int layers = 1;  // of the network that are like it
};

// In the order in which they come first.
std::vector<Counted> DistinctLayers(const graph::Network& network, int batch);

// "32x32x3"; n is 1. Throws where it is none.
Shape ParseImage(const char* text);

// One way to compute a layer. Each function is one call over the batch; the weights' copies are
// made before. An empty function: the layer has no such part. The backward pass of attention is all
// data gradient.
struct Program {
  std::function<void()> forward, weight_gradient;
  // The work of the data gradient, or, where it is not to be had by itself, of both gradients.
  std::function<void()> data_gradient, both_gradients;
  std::shared_ptr<void> owner;  // what the functions work on
};

// With softmax (of attention), roundings and what a step counts that is not logged.
Program MakeOurs(const Layer& layer, const NumberFormat& format, int threads);
// In whatever layouts oneDNN likes best for this shape; nothing is reordered in the calls.
// Attention is two products forwards and four backwards, of heads that lie one after another.
Program MakeOnednn(const Layer& layer, int threads);

// `count` values of a normal distribution, the same in every call.
void FillNormal(float* values, std::size_t count, float deviation);

}  // namespace ada::bench
