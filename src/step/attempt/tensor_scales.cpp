// Gives each per-tensor scale the largest magnitude of its tensor, and moves all of them on after a
// step.
#include "step/attempt/tensor_scales.h"

#include <cmath>

#include "error.h"
#include "number/blocks/block_quantizer.h"
#include "scaling/rules/tensor_scale.h"
#include "step/weight_values.h"

namespace ada::step {
namespace {

// "fc.forward.w" is operand forward.w of layer fc, whose name may have dots.
std::pair<std::string, std::string> Parted(const std::string& tensor) {
  const std::size_t at = tensor.rfind('.', tensor.rfind('.') - 1);
  return {tensor.substr(0, at), tensor.substr(at + 1)};
}

}  // namespace

// A weight that the optimizer does not update has no slot, and does not move.
TensorScales::TensorScales(graph::Graph& graph, const optim::Optimizer& optimizer)
    : graph_(graph), amax_(graph.scaled_tensors().size()), weights_(amax_.size()) {
  const auto& tensors = graph.scaled_tensors();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].scale->predicted) continue;
    Weight& weight = weights_[i];
    weight = {WeightOf(graph, Parted(tensors[i].name).first), 0};
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
    const auto [layer, operand] = Parted(tensors[i].name);
    MeasuredScale of{layer, operand, AmaxOf(HostValues(weights_[i].parameter->value, backend)),
                     predicted->bound()};
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
