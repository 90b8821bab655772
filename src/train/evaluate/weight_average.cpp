// The average lives in a graph of its own that is never trained; the backend moves all its
// parameters in one op.
#include "train/evaluate/weight_average.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/error.h"

namespace ada::train {

bool KeepsAverage(const config::Config& config) { return config.train.ema.decay > 0; }

bool EvaluatesAverage(const config::Config& config) {
  return KeepsAverage(config) && config.evaluate.weights != config::EvaluatedWeights::kTrained;
}

double AverageKeep(const config::EmaConfig& ema, std::int64_t n) {
  const auto steps = static_cast<double>(n);
  return ema.warmup ? std::min(ema.decay, (1 + steps) / (10 + steps)) : ema.decay;
}

// The running statistics of batch norms are averaged like weights: both lists hold them.
WeightAverage::WeightAverage(const config::Config& config, const Shape& image,
                             backend::Backend& backend, const graph::Graph& trained)
    : ema_(config.train.ema), trained_(trained), evaluator_(config, image, backend, nullptr) {
  const auto &from = trained.parameters(), &to = evaluator_.graph().parameters();
  ADA_CHECK(from.size() == to.size());
  std::vector<backend::AverageSlot> slots;
  for (std::size_t i = 0; i < from.size(); ++i) {
    ADA_CHECK(from[i].name == to[i].name);
    slots.push_back({from[i].value, to[i].value});
  }
  op_ = backend.MakeAverage(std::move(slots));
}

// With nothing kept of what was there the average becomes the weights.
void WeightAverage::Start() { op_->Step(0); }

void WeightAverage::AfterUpdate(std::int64_t updates) {
  if (updates % ema_.every == 0) op_->Step(AverageKeep(ema_, updates / ema_.every));
}

// Per-tensor scales belong to the training's histories; the average's copies of weights are rounded
// with the scales of the moment.
Evaluator& WeightAverage::evaluator() {
  graph::Graph& graph = evaluator_.graph();
  for (const graph::ScaledTensor& to : graph.scaled_tensors())
    for (const graph::ScaledTensor& from : trained_.scaled_tensors())
      if (from.name == to.name)
        *to.scale->per_tensor_scale.host = *from.scale->per_tensor_scale.host;
  if (!graph.scaled_tensors().empty()) graph.SendTensorScales();
  return evaluator_;
}

}  // namespace ada::train
