// Single convolutions and linear layers, timed: ours through backend.h, and oneDNN's f32 primitives
// of the same shape.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "layers.h"

namespace ada::bench {

// One way to compute a layer. Each function is one call over the batch; the weights' copies are
// made before. An empty function: the layer has no such part.
struct Program {
  std::string name;
  int size = 4;  // as in Bytes
  std::function<void()> forward, weight_gradient;
  // The work of the data gradient, or, where it is not to be had by itself, of both gradients.
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
