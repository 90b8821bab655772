// The convolutions and linear layers of a network, each distinct one once.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace ada::graph {
struct Network;
}

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
  // Bytes of a part's operands and its result, each once; `size`: bytes of a value of x, y and
  // their gradients (weights and their gradient are fp32).
  double Bytes(int size) const;
};

struct Counted {
  Layer layer;
  int layers = 1;  // of the network that are like it
};

// In the order in which they come first.
std::vector<Counted> DistinctLayers(const graph::Network& network, int batch);

// "32x32x3"; n is 1. Throws where it is none.
Shape ParseImage(const char* text);

}  // namespace ada::bench
