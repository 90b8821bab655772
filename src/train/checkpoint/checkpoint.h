// Checkpoints: a safetensors file with masters, running statistics and optimizer state, and a JSON
// file with everything else a run needs to go on as if it had never stopped. The JSON is written
// last and names the tensors' hash: a pair without it, or with a wrong one, does not count.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "graph/graph.h"
#include "optim/optimizer.h"
#include "scaling/policies/policy.h"
#include "telemetry/log.h"
#include "train/facts/data_facts.h"

namespace ada::train {

// What the JSON holds.
struct CheckpointState {
  std::int64_t step = 0, skips_in_a_row = 0, updates = 0, retries = 0, schedule_steps = 0;
  std::uint64_t seed = 0;
  // The best of the evaluations so far: top-1, mIoU or mAP as in 2007, as the task has it; below 0:
  // none.
  double best_top1 = -1;
  std::vector<double> class_weights = {};  // that were computed from the training images
  scaling::StateMap policy;
  std::map<std::string, scaling::StateMap> layers;     // cached values of each layer's scaler
  std::map<std::string, scaling::StateMap> tensors;    // scales of tensors (delayed scaling)
  std::map<std::string, scaling::StateMap> scenarios;  // of log.what_if, by name
  std::map<std::string, std::int64_t> lengths;         // of the CSV files, in bytes
  std::optional<InputFacts> input;                     // empty: an earlier version wrote it
  std::optional<DataFacts> data_facts;                 // the same; or images that are made up
  std::string config;                                  // resolved, YAML
  std::string backend, version;                        // what wrote it
};

// "<folder>/step-00001950", without the extension.
std::string CheckpointStem(const std::string& folder, std::int64_t step);

// After kAveragePrefix stand the tensors of a moving average of the weights.
inline constexpr char kAveragePrefix[] = "ema.";

// Writes both files atomically. `average` null: there is none. OutputError; an earlier checkpoint
// stays as it was.
void WriteCheckpoint(const std::string& stem, const CheckpointState& state,
                     const graph::Graph& graph, const optim::Optimizer& optimizer,
                     const graph::Graph* average, backend::Backend& backend);

// Reads and checks the JSON and the tensors' hash. `path`: either file of the pair. DataError.
CheckpointState ReadCheckpointState(const std::string& path);
// Puts the tensors where they belong. `optimizer` null: only weights (evaluate). prefix: of their
// names in the file. DataError.
void LoadCheckpointTensors(const std::string& path, graph::Graph& graph,
                           const optim::Optimizer* optimizer, backend::Backend& backend,
                           const std::string& prefix = "");

// Puts the scales of tensors where they belong. DataError where one is missing or not usable.
// switched: the precision changes after the checkpoint; then a tensor that it does not have starts
// afresh, and others keep their histories.
void LoadTensorScales(const std::string& path, const CheckpointState& state, graph::Graph& graph,
                      bool switched = false);

// Steps of the checkpoints in `folder`, newest first; a missing folder has none.
// Found by the names of files only; that a pair is whole is known when it is read.
struct CheckpointSteps {
  std::vector<std::int64_t> paired;         // have a JSON file, so they were written to the end
  std::vector<std::int64_t> tensors_alone;  // a kill came before the JSON, or between two deletions
};
CheckpointSteps ListCheckpoints(const std::string& folder);  // DataError
// Deletes what is older than step `written`, the newest `keep` - 1 of it excepted.
void PruneCheckpoints(const std::string& folder, int keep, std::int64_t written);
// Deletes what is newer than step `last`, from which a run goes on (-1: it begins, nothing does):
// it will be written again, and the logs no longer reach so far. Only tensors go, whatever their
// step.
void RemoveOtherCheckpoints(const std::string& folder, std::int64_t last);

// Where a run goes on.
// Returned by FindResumePoint, or made after a switch of the precision from the checkpoint just
// written.
struct ResumePoint {
  std::string stem;  // of the checkpoint's files
  CheckpointState state;
};
// The newest checkpoint in `folder` that is whole and fits the configuration; damaged ones are
// reported as warnings and passed over. nullopt: none was ever written to its end. Throws
// ConfigError where the configuration differs in a key that may not change, DataError where the
// folder cannot be listed or none of its checkpoints can be used.
std::optional<ResumePoint> FindResumePoint(const std::string& folder, const config::Config& config,
                                           telemetry::Log& log);

// The JSON file of a checkpoint: every field with its type and range, and hashes of the state and
// of the tensors' file, by which a damaged pair is known.

// The file's bytes. `tensors_hash` is that of the pair's other file.
std::string StateText(const CheckpointState& state, const std::string& tensors_hash);

// What ReadStateText gives; that the tensors' file has this hash is the caller's to check.
struct StoredState {
  CheckpointState state;
  std::string tensors_hash;
};
// Throws DataError where the file cannot be read, is damaged, is of another version, or holds a
// field that is not what it must be.
StoredState ReadStateText(const std::string& path);

// A file of a checkpoint that is not as it should be: DataError.
[[noreturn]] void Damaged(const std::string& path, const std::string& what);

// Puts the state of a checkpoint into the parts of a training: what a run that goes on and a run
// that is forked have in common. Position, logs and averages are the caller's.

// Returns how a checkpoint calls the state that a layer has in a process other than the first.
std::string OfProcess(const std::string& layer, int rank);

// Weights, running statistics, optimizer state, scales of tensors, the policy and each layer's own
// state become those of `from`. `rank`: of the process, where each decides on its own (else 0).
// switched: as of LoadTensorScales. DataError where the checkpoint lacks one of them.
void RestoreParts(const ResumePoint& from, int rank, bool switched, graph::Graph& graph,
                  optim::Optimizer& optimizer, scaling::Policy& policy, backend::Backend& backend);

}  // namespace ada::train
