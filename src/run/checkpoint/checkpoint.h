// Checkpoints: a safetensors file with masters, running statistics and optimizer state, and a JSON
// file with everything else a run needs to go on as if it had never stopped. The JSON is written
// last and contains the tensors' hash: a pair without it, or with a wrong hash, is ignored.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "graph/graph.h"
#include "io/tensor_files/safetensors.h"
#include "optim/optimizer.h"
#include "run/facts/data_facts.h"
#include "scaling/policies/policy.h"
#include "telemetry/log.h"

namespace ada::run {

// What the JSON holds.
struct CheckpointState {
  std::int64_t step = 0, skips_in_a_row = 0, updates = 0, retries = 0, schedule_steps = 0;
  std::uint64_t seed = 0;
  // The best evaluation so far by the task's metric: top-1, mIoU, or mAP by the rules of VOC2007;
  // below 0: there is none.
  double best_top1 = -1;
  std::vector<double> class_weights = {};  // computed from the training images
  scaling::StateMap policy;
  std::map<std::string, scaling::StateMap> layers;     // cached values of each layer's scaler
  std::map<std::string, scaling::StateMap> tensors;    // scales of tensors (delayed scaling)
  std::map<std::string, scaling::StateMap> scenarios;  // of log.what_if, by name
  std::map<std::string, std::int64_t> lengths;         // of the CSV files, in bytes
  std::optional<InputFacts> input;                     // empty: written by an earlier version
  std::optional<DataFacts> data_facts;                 // likewise; or images are generated
  std::string config;                                  // resolved, YAML
  std::string backend, version;                        // what wrote it
};

// "<folder>/step-00001950", without the extension.
std::string CheckpointStem(const std::string& folder, std::int64_t step);

// Prefix of the names of tensors that belong to the moving average of the weights.
inline constexpr char kAveragePrefix[] = "ema.";

// Writes both files atomically; `average` null: there is none. Throws OutputError; an earlier
// checkpoint then stays as it was.
void WriteCheckpoint(const std::string& stem, const CheckpointState& state,
                     const graph::Graph& graph, const optim::Optimizer& optimizer,
                     const graph::Graph* average, backend::Backend& backend);

// Reads and checks the JSON and the tensors' hash. `path`: either file of the pair. DataError.
CheckpointState ReadCheckpointState(const std::string& path);
// Opens the pair's tensors. DataError.
SafetensorsFile OpenCheckpointTensors(const std::string& path);
// Loads the tensors into `graph` and `optimizer` (null: only weights, for evaluate). prefix: of the
// tensors' names in the file. Throws DataError.
void LoadCheckpointTensors(const SafetensorsFile& file, graph::Graph& graph,
                           const optim::Optimizer* optimizer, backend::Backend& backend,
                           const std::string& prefix = "");

// Loads the scales of tensors. Throws DataError if one is missing or not usable. switched: the
// precision changes after the checkpoint; then a tensor that it does not have starts with a new
// history, and the others keep theirs.
void LoadTensorScales(const std::string& path, const CheckpointState& state, graph::Graph& graph,
                      bool switched = false);

// Steps of the checkpoints in `folder`, newest first; a missing folder has none.
// Only the names of files are looked at; whether a pair is complete is found when it is read.
struct CheckpointSteps {
  std::vector<std::int64_t> paired;         // have a JSON file, so they were written to the end
  std::vector<std::int64_t> tensors_alone;  // killed before the JSON, or between two deletions
};
CheckpointSteps ListCheckpoints(const std::string& folder);  // DataError
// Deletes checkpoints older than step `written`, except for the newest `keep` - 1 of them.
void PruneCheckpoints(const std::string& folder, int keep, std::int64_t written);
// Deletes checkpoints newer than step `last`, at which a run resumes (-1: it starts anew, and no
// complete pair is deleted): they will be written again, and the logs no longer reach that far.
// Tensors without a JSON file are deleted whatever their step.
void RemoveOtherCheckpoints(const std::string& folder, std::int64_t last);

// The point at which a run resumes.
// Returned by FindResumePoint, or made after a switch of the precision from the checkpoint just
// written.
struct ResumePoint {
  std::string stem;  // of the checkpoint's files
  CheckpointState state;
  // Its tensors, where they are held open because a run that goes on may delete them; else null.
  std::shared_ptr<const SafetensorsFile> tensors = nullptr;
};
// Returns the newest checkpoint in `folder` that is complete and fits the configuration; damaged
// ones are skipped with a warning. nullopt: no checkpoint was ever completed. Throws ConfigError if
// the configuration differs in a key that must not change, DataError if the folder cannot be listed
// or none of its checkpoints can be used.
std::optional<ResumePoint> FindResumePoint(const std::string& folder, const config::Config& config,
                                           telemetry::Log& log);

// The JSON file of a checkpoint: every field with its type and range, and hashes of the state and
// of the tensors' file, which reveal a damaged pair. `tensors_hash` is that of the pair's other
// file.
std::string StateText(const CheckpointState& state, const std::string& tensors_hash);

// Result of ReadStateText; the caller checks that the tensors' file has this hash.
struct StoredState {
  CheckpointState state;
  std::string tensors_hash;
};
// Throws DataError where the file cannot be read, is damaged, is of another version, or holds a
// field that is not what it must be.
StoredState ReadStateText(const std::string& path);

// Throws DataError: a file of a checkpoint is not what it should be.
[[noreturn]] void Damaged(const std::string& path, const std::string& what);

// Returns the name in checkpoints of a layer's state in a process other than the first.
std::string OfProcess(const std::string& layer, int rank);

// Restores a checkpoint into the parts of a training, a resumed run's or a fork's: weights, running
// statistics, optimizer state, scales of tensors, the policy and each layer's own state. Position,
// logs and averages are left to the caller. `rank`: of the process if each decides on its own,
// otherwise 0. switched: as in LoadTensorScales. Throws DataError if the checkpoint lacks one of
// them.
void RestoreParts(const ResumePoint& from, int rank, bool switched, graph::Graph& graph,
                  optim::Optimizer& optimizer, scaling::Policy& policy, backend::Backend& backend);

// RequireSameClasses of the newest readable checkpoint of a run.
void RequireClassesOfRun(const config::Config& config, const data::DatasetInfo& info);

}  // namespace ada::run
