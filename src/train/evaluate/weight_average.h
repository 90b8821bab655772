// The exponential moving average of a network's weights (train.ema), in addition to the network
// that is trained: its parameters and running statistics, and what evaluates them.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "backend/backend.h"
#include "config/config.h"
#include "graph/graph.h"
#include "train/evaluate/evaluator.h"

namespace ada::train {

// What is after the name of a split whose images the average judged.
inline constexpr char kAverageSplit[] = "_ema";

// Whether a run keeps an average, and whether it is evaluated.
bool KeepsAverage(const config::Config& config);
bool EvaluatesAverage(const config::Config& config);

// What stays of the average in its n-th step (from 1): decay; with warmup at most
// (1 + n) / (10 + n).
double AverageKeep(const config::EmaConfig& ema, std::int64_t n);

// Owned by the session where train.ema.decay is above 0. It moves after updates, never after
// skipped steps, so that `updates` is the count of the optimizer.
class WeightAverage {
 public:
  // `trained` must outlive it. Averages are zero until Start or a checkpoint fills them.
  WeightAverage(const config::Config& config, const Shape& image, backend::Backend& backend,
                const graph::Graph& trained);
  void Start();  // the average is the weights
  // After update number `updates` (from 1), for every `train.ema.every`-th of which it moves.
  void AfterUpdate(std::int64_t updates);
  // Holds the average; scales of tensors are the trained network's present ones.
  Evaluator& evaluator();
  graph::Graph& graph() { return evaluator_.graph(); }

 private:
  config::EmaConfig ema_;
  const graph::Graph& trained_;
  Evaluator evaluator_;
  std::unique_ptr<backend::AverageOp> op_;
};

}  // namespace ada::train
