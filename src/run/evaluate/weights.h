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
#include "run/checkpoint/checkpoint.h"
#include "run/evaluate/evaluator.h"
#include "telemetry/log.h"

namespace ada::run {

// Loads the weights of an evaluation from `path`: a checkpoint (average: its moving average), or a
// safetensors file that holds only weights and has no JSON file next to it. For the latter, warns
// of tensors that the network does not have. Throws DataError if the network has tensors that the
// file lacks or has in another shape, or if it needs scales of tensors, which only a checkpoint
// has.
void LoadEvaluatedWeights(const std::string& path, bool average, graph::Graph& graph,
                          backend::Backend& backend, telemetry::Log& log);

// What a checkpoint holds besides tensors; nullopt: the file has only weights. DataError.
std::optional<CheckpointState> StateOfCheckpoint(const std::string& path);

// The tensors' file of a run's newest checkpoint, or of its best. DataError where there is none.
std::string CheckpointOfRun(const std::string& folder, bool best);

// The configuration stored in a checkpoint, as YAML. DataError, also for a file of weights only.
std::string CheckpointConfig(const std::string& checkpoint);
// The step after which a checkpoint was written; for a file of weights only the largest possible
// step; for an empty path (the network as it starts) 1. Throws DataError.
std::int64_t StepOfWeights(const std::string& path);

// Suffix of a split's name for evaluations with the averaged weights.
inline constexpr char kAverageSplit[] = "_ema";

// Whether a run keeps an average, and whether it is evaluated.
bool KeepsAverage(const config::Config& config);
bool EvaluatesAverage(const config::Config& config);

// The share of the old average that is kept in its n-th step (from 1): decay; with warmup at most
// (1 + n) / (10 + n).
double AverageKeep(const config::EmaConfig& ema, std::int64_t n);

// The exponential moving average of a network's weights (train.ema), in addition to the network
// that is trained: its parameters and running statistics, and what evaluates them. Owned by the
// session where train.ema.decay is above 0. It moves after updates, never after skipped steps, so
// that `updates` is the count of the optimizer.
class WeightAverage {
 public:
  // `trained` must outlive it. Averages are zero until Start or a checkpoint fills them.
  WeightAverage(const config::Config& config, const Shape& image, backend::Backend& backend,
                const graph::Graph& trained);
  void Start();  // sets the average to the current weights
  // To be called after update number `updates` (from 1); the average moves every ema.every of them.
  void AfterUpdate(std::int64_t updates);
  // Before an evaluation: the average's tensors take the trained network's current scales.
  void TakeScales();
  Evaluator& evaluator() { return evaluator_; }
  graph::Graph& graph() { return evaluator_.graph(); }

 private:
  config::EmaConfig ema_;
  const graph::Graph& trained_;
  Evaluator evaluator_;
  std::unique_ptr<backend::AverageOp> op_;
};

}  // namespace ada::run
