// The keys that kinds of layers know beside `name`, `kind` and `inputs`, with their defaults: the
// union over all kinds. Which kind knows which stands in the kind's row (layer_kind.h).
#pragma once
#include <array>

namespace ada::graph {

struct LayerKeys {
  int channels = 0;  // of the output
  int features = 0;  // outputs
  // [height, width]
  std::array<int, 2> kernel = {1, 1}, stride = {1, 1}, padding = {0, 0}, dilation = {1, 1};
  int groups = 1;
  bool bias = true;
  double rate = 0.5;
  double eps = 1e-5, momentum = 0.1;
};

}  // namespace ada::graph
