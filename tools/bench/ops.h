// Single convolutions, linear layers and attention, timed: ours through backend.h, and oneDNN's f32
// primitives of the same shape.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "layers.h"

namespace ada::bench {

// One way to compute a layer. Each function is one call over the batch; the weights' copies are
// made before. An empty function: the layer has no such part. The backward pass of attention is all
// data gradient.
struct Program {
  std::string name;
  int size = 4;  // as in Bytes
  std::function<void()> forward, weight_gradient;
  // The work of the data gradient, or, where it is not to be had by itself, of both gradients.
  std::function<void()> data_gradient, both_gradients;
  std::shared_ptr<void> owner;  // what the functions work on
};

// `layer` is a convolution or a linear layer.
Program MakeOurs(const Layer& layer, const std::string& name, const NumberFormat& format,
                 int threads);
// In whatever layouts oneDNN likes best for this shape; nothing is reordered in the calls.
Program MakeOnednn(const Layer& layer, int threads);

// `layer` is attention: ours with softmax, roundings and what a step counts that is not logged;
// oneDNN's two products forwards and four backwards alone, of heads that lie one after another.
Program MakeOurAttention(const Layer& layer, const std::string& name, const NumberFormat& format,
                         int threads);
Program MakeOnednnAttention(const Layer& layer, int threads);

// `count` values of a normal distribution, the same in every call.
void FillNormal(float* values, std::size_t count, float deviation);

}  // namespace ada::bench
