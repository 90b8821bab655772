// A path is a checkpoint unless it ends with .safetensors and no JSON file of the same name is next
// to it; the best checkpoint of a run is one as well. The average lives in a graph of its own that
// is never trained; the backend moves all its parameters in one op.
#include "run/evaluate/weights.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <utility>
#include <vector>

#include "error.h"
#include "io/data_files.h"
#include "io/file.h"
#include "io/tensor_files/safetensors.h"
#include "io/text.h"
#include "run/checkpoint/checkpoint.h"

namespace ada::run {
namespace {

namespace fs = std::filesystem;

// A .safetensors whose JSON is not there. DataError where it is missing itself.
bool IsWeightsAlone(const std::string& path) {
  if (!path.ends_with(".safetensors")) return false;
  if (IsThere(fs::path(path).replace_extension(".json").string())) return false;
  if (!IsThere(path)) throw DataError(path + ": missing, and so is its JSON file");
  return true;
}

// Counters of batches (num_batches_tracked), which PyTorch stores for each batch norm, are not
// weights and cause no warning.
void WarnOfUnused(const SafetensorsFile& file, const graph::Graph& graph, telemetry::Log& log) {
  std::size_t unused = 0;
  std::string names;
  for (const TensorEntry& entry : file.entries()) {
    const auto& parameters = graph.parameters();
    const bool known =
        std::any_of(parameters.begin(), parameters.end(), [&](const graph::Parameter& p) {
          return p.name == entry.name || Contains(p.other_names, entry.name);
        });
    if (known || entry.name.ends_with("num_batches_tracked")) continue;
    if (++unused <= 3) names += (unused == 1 ? "" : ", ") + entry.name;
  }
  if (unused > 0)
    log.Warning(file.path() + ": " + Counted(unused, "tensor") +
                " not used, since the network has none of these names: " + names +
                (unused > 3 ? ", ..." : ""));
}

void LoadWeightsAlone(const std::string& path, graph::Graph& graph, backend::Backend& backend,
                      telemetry::Log& log) {
  if (!graph.scaled_tensors().empty())
    throw DataError(path +
                    ": holds weights alone, and precision.tensor_scaling needs the scales "
                    "of tensors, which checkpoints have; --set precision.tensor_scaling=none "
                    "evaluates without");
  const SafetensorsFile file = SafetensorsFile::Open(path);
  for (const graph::Parameter& parameter : graph.parameters()) graph::CheckTied(file, parameter);
  WarnOfUnused(file, graph, log);
  LoadCheckpointTensors(OpenCheckpointTensors(path), graph, nullptr, backend);
}

}  // namespace

// The scales of tensors are loaded first: the copies of weights are made with them in the first
// pass.
void LoadEvaluatedWeights(const std::string& path, bool average, graph::Graph& graph,
                          backend::Backend& backend, telemetry::Log& log) {
  if (IsWeightsAlone(path)) return LoadWeightsAlone(path, graph, backend, log);
  LoadTensorScales(path, ReadCheckpointState(path), graph);
  LoadCheckpointTensors(OpenCheckpointTensors(path), graph, nullptr, backend,
                        average ? kAveragePrefix : "");
  if (average)
    log.Info(path +
             ": the moving average of the weights (train.ema) is evaluated; --set "
             "evaluate.weights=trained evaluates those that were trained");
}

std::int64_t StepOfWeights(const std::string& path) {
  if (path.empty()) return 1;
  const std::optional<CheckpointState> state = StateOfCheckpoint(path);
  return state ? std::max<std::int64_t>(state->step, 1) : std::numeric_limits<std::int64_t>::max();
}

std::string CheckpointConfig(const std::string& checkpoint) {
  if (IsWeightsAlone(checkpoint))
    throw DataError(checkpoint +
                    ": holds weights alone (no JSON file of a checkpoint is beside it); expected "
                    "the network that they belong to as well: --config FILE");
  return ReadCheckpointState(checkpoint).config;
}

std::optional<CheckpointState> StateOfCheckpoint(const std::string& path) {
  if (IsWeightsAlone(path)) return std::nullopt;
  return ReadCheckpointState(path);
}

std::string CheckpointOfRun(const std::string& folder, bool best) {
  const std::string checkpoints = (fs::path(folder) / "checkpoints").string();
  const std::vector<std::int64_t> steps = ListCheckpoints(checkpoints).paired;
  if (best) {
    std::string path = checkpoints + "/best.safetensors";
    if (IsThere(path)) return path;
    throw DataError(path +
                    ": missing; a run writes it when it is evaluated, unless "
                    "checkpoint.best is false");
  }
  if (steps.empty())
    throw DataError(checkpoints +
                    ": holds no checkpoint; expected the folder of a run that has "
                    "written one");
  return CheckpointStem(checkpoints, steps.front()) + ".safetensors";
}

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

// A step that keeps nothing of the old average sets it to the weights.
void WeightAverage::Start() { op_->Step(0); }

void WeightAverage::AfterUpdate(std::int64_t updates) {
  if (updates % ema_.every == 0) op_->Step(AverageKeep(ema_, updates / ema_.every));
}

// Per-tensor scales belong to the training's histories; the average's copies of weights are rounded
// with the scales of the moment.
void WeightAverage::TakeScales() {
  graph::Graph& graph = evaluator_.graph();
  for (const graph::ScaledTensor& to : graph.scaled_tensors())
    for (const graph::ScaledTensor& from : trained_.scaled_tensors())
      if (from.layer == to.layer && from.tensor == to.tensor)
        *to.scale->per_tensor_scale.host = *from.scale->per_tensor_scale.host;
  if (!graph.scaled_tensors().empty()) graph.SendTensorScales();
}

}  // namespace ada::run
