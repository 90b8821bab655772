// Gives each per-tensor scale the largest magnitude of its tensor, and moves all of them on after a
// step.
#include "step/attempt/tensor_scales.h"

#include <cmath>

#include "scaling/rules/tensor_scale.h"

namespace ada::step {

void TensorScales::Observe(bool first) {
  const auto& tensors = graph_.scaled_tensors();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const float amax = tensors[i].stats->max_abs;
    float& largest = amax_[i];
    if (first || std::isnan(amax) || amax > largest) largest = amax;
  }
}

void TensorScales::Update() {
  const auto& tensors = graph_.scaled_tensors();
  for (std::size_t i = 0; i < tensors.size(); ++i)
    scaling::UpdateTensorScale(tensors[i].scale->history, amax_[i],
                               *tensors[i].scale->per_tensor_scale.host);
  if (!tensors.empty()) graph_.SendTensorScales();
}

}  // namespace ada::step
