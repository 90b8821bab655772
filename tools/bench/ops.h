// Single convolutions, linear layers and attention of a network, each distinct one once, and two
// ways to compute them: ours through backend.h, and oneDNN's f32 primitives of the same shape.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <string>

#include "number/tensor.h"

namespace ada::bench {

// What is timed of a layer. The backward pass of attention is all data gradient. Ours has the data
// gradient of other layers only together with the weight gradient.
enum class Part : std::uint8_t { kForward, kWeightGradient, kDataGradient, kBothGradients };

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
  // "conv 3x3 32x32x16 > 32x32x16", "linear 64 > 10", "attention 4x32 128 tokens"
  std::string Text() const;
  // Operations of a part, a multiply-add counted as 2. The forward pass of attention has two
  // products, which count masked pairs of tokens as well, and its backward pass four.
  double Flop(Part part) const;
  // Bytes of a part's operands and its result, each once; `size`: bytes of a value of x, y and
  // their gradients (weights and their gradient are fp32).
  double Bytes(Part part, int size) const;
};

// Computes a part of a layer once, over the batch; the weights' copies are made before.
using Work = std::function<void()>;
// With softmax (of attention), roundings and what a step counts that is not logged.
Work MakeOurs(const Layer& layer, Part part, const NumberFormat& format, int threads);
// Tensors in channels-last order, weights in whatever layouts oneDNN likes best; nothing is
// reordered in the calls. Attention is two products forwards and four backwards, of heads that lie
// one after another.
Work MakeOnednn(const Layer& layer, Part part, int threads);

// `count` values of a normal distribution, the same in every call.
void FillNormal(float* values, std::size_t count, float deviation);

}  // namespace ada::bench
