// Gives each per-tensor scale the largest magnitude of its tensor, and moves all of them on after a
// step.
#include "step/attempt/tensor_scales.h"

#include <cmath>

#include "error.h"
#include "number/blocks/block_quantizer.h"
#include "scaling/rules/tensor_scale.h"
#include "step/weight_values.h"

namespace ada::step {

// A weight that the optimizer does not update has no slot, and does not move.
TensorScales::TensorScales(graph::Graph& graph, const optim::Optimizer& optimizer)
    : graph_(graph), amax_(graph.scaled_tensors().size()), weights_(amax_.size()) {
  const auto& tensors = graph.scaled_tensors();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].scale->predicted) continue;
    Weight& weight = weights_[i];
    weight = {WeightOf(graph, tensors[i].layer), 0};
    ADA_CHECK(weight.parameter != nullptr);
    for (const backend::UpdateSlot& slot : optimizer.slots())
      if (slot.value.data == weight.parameter->value.data) weight.lr = slot.lr;
  }
}

std::vector<MeasuredScale> TensorScales::Measure(backend::Backend& backend) {
  std::vector<MeasuredScale> measured;
  const auto& tensors = graph_.scaled_tensors();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    std::optional<scaling::PredictedScale>& predicted = tensors[i].scale->predicted;
    if (!predicted || !predicted->wants_measure()) continue;
    MeasuredScale of{tensors[i].layer, tensors[i].tensor,
                     AmaxOf(HostValues(weights_[i].parameter->value, backend)), predicted->bound()};
    of.steps = predicted->steps;
    scaling::TensorScaler& scaler = *tensors[i].scale->per_tensor_scale.host;
    scaling::MeasureScale(*predicted, of.largest, scaler);
    of.scale = scaler.scale;
    measured.push_back(of);
  }
  if (!measured.empty()) graph_.SendTensorScales();
  return measured;
}

void TensorScales::Observe(bool first) {
  const auto& tensors = graph_.scaled_tensors();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const float amax = tensors[i].stats->max_abs;
    float& largest = amax_[i];
    if (first || std::isnan(amax) || amax > largest) largest = amax;
  }
}

void TensorScales::Update(double lr) {
  const auto& tensors = graph_.scaled_tensors();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    graph::TensorScale& scale = *tensors[i].scale;
    scaling::TensorScaler& scaler = *scale.per_tensor_scale.host;
    if (scale.predicted)
      scaling::PredictScale(*scale.predicted, lr * weights_[i].lr, scaler);
    else
      scaling::UpdateTensorScale(scale.history, amax_[i], scaler);
  }
  if (!tensors.empty()) graph_.SendTensorScales();
}

}  // namespace ada::step
