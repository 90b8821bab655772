// Single convolutions and linear layers, timed: ours through backend.h, and oneDNN's f32 primitives
// of the same shape.
#pragma once
#include <array>
#include <functional>
#include <memory>
#include <string>

#include "core/tensor.h"

namespace ada::bench {

// A layer of a network over a whole batch.
struct Layer {
  Shape x, w, y;  // w: {out, kernel height, kernel width, in / groups}
  std::array<int, 2> stride = {1, 1}, padding = {0, 0}, dilation = {1, 1};
  int groups = 1;
  bool linear = false, bias = false;
  bool data_gradient = true;  // false: it sees the images
  friend bool operator==(const Layer&, const Layer&) = default;

  std::string Text() const;  // "conv 3x3 32x32x16 > 32x32x16", "linear 64 > 10"
  double Flop() const;       // of each part, a multiply-add counted as 2
  // Of a part's operands and its result, each once; `size`: bytes of a value of x, y and their
  // gradients (weights and their gradient are fp32).
  double Bytes(int size) const;
};

// One way to compute a layer. Each function is one call over the batch; the weights' copies are
// made before. An empty function: the layer has no such part.
struct Program {
  std::string name;
  int size = 4;  // as in Bytes
  std::function<void()> forward, weight_gradient;
  // Of the data gradient alone, or, where it is not to be had alone, of both gradients.
  std::function<void()> data_gradient, both_gradients;
  std::shared_ptr<void> owner;  // what the functions work on
};

Program MakeOurs(const Layer& layer, const std::string& name, const NumberFormat& format,
                 int threads);
// In whatever layouts oneDNN likes best for this shape; nothing is reordered in the calls.
Program MakeOnednn(const Layer& layer, int threads);

// `count` values of a normal distribution, the same in every call.
void FillNormal(float* values, std::size_t count, float deviation);

}  // namespace ada::bench
