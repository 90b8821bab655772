// The weights that are evaluated: out of a checkpoint or a file, or the moving average of those
// that are trained.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "backend/backend.h"
#include "config/config.h"
#include "graph/graph.h"
#include "telemetry/log.h"
#include "train/checkpoint/checkpoint.h"
#include "train/evaluate/evaluator.h"

namespace ada::train {

// Where the weights of an evaluation come from: a checkpoint, or a safetensors file that holds only
// weights and has no JSON file next to it.

// Puts the tensors of `path` where they belong (average: of a checkpoint those of the moving
// average); of weights alone those that the network does not
// have are warned of. DataError where the network has more, others, or scales of tensors that only
// a checkpoint knows.
void LoadEvaluatedWeights(const std::string& path, bool average, graph::Graph& graph,
                          backend::Backend& backend, telemetry::Log& log);

// What a checkpoint holds besides tensors; empty: the file holds only weights. DataError.
std::optional<CheckpointState> StateOfCheckpoint(const std::string& path);

// The tensors' file of a run's newest checkpoint, or of its best. DataError where there is none.
std::string CheckpointOfRun(const std::string& folder, bool best);

// The configuration that a checkpoint was written with, as YAML. DataError, also of weights alone.
std::string CheckpointConfig(const std::string& checkpoint);
// The step after which a checkpoint was written; of weights alone the last that there could be, of
// an empty path (the network as it starts) 1. DataError.
std::int64_t StepOfWeights(const std::string& path);

// The exponential moving average of a network's weights (train.ema), in addition to the network
// that is trained: its parameters and running statistics, and what evaluates them.

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
