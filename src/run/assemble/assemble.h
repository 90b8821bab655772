// From the configuration to the backend and the data of a run: each function turns one section into
// the types of another module. Those modules do not know the configuration; only this file and
// step/specs.h map the names.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/cuda_backend.h"
#include "config/config.h"
#include "data/loader.h"
#include "graph/graph.h"
#include "run/facts/data_facts.h"
#include "scaling/policies/policy.h"
#include "step/team.h"
#include "telemetry/log.h"

namespace ada::run {

// The backend that device.kind asks for, and one line that says which it is and why it was chosen.
// Throws DeviceError if the requested device is missing.
struct ChosenBackend {
  std::unique_ptr<backend::Backend> backend;
  std::string reason;
  int threads = 1;
  bool has_own_memory = false;  // a GPU
};
// Collective: every process of a team calls it.
ChosenBackend MakeBackend(const config::DeviceConfig& device,
                          step::Team& team = step::Team::OfOne());

// What the section `data` specifies about files whose layout leaves it open.
data::FileChoices ChoicesOf(const config::Config& config);

// Returns what is known of the images before they are read: the shape of the network's input, and
// how many images there are after `limit` and `validation`. Throws DataError, or ConfigError if the
// configuration does not fit them.
data::DatasetInfo InspectData(const config::Config& config);
// Returns the configuration completed by what only the data tell: model.classes if not given.
// Throws ConfigError if there are more classes than the network has outputs.
config::Config Completed(config::Config config, const data::DatasetInfo& info);

// Splits of a language model, limited and held back as a run has them, of which no token has a
// target.
struct SplitWithoutTargets {
  std::string name, text;  // "FILE: tensor test.targets: all are -100 in split test; expected ..."
};
std::vector<SplitWithoutTargets> FindSplitsWithoutTargets(const config::Config& config,
                                                          data::Splits splits);
// DataError where there is such a split.
void RequireTargets(const config::Config& config, const data::DatasetInfo& info);

// The images of a run, limited and split as the section `data` says. `validation` is empty if no
// images are held out.
// Made by ReadData before the session and unchanged after that: loaders, evaluators and probes keep
// references to its data sets for the whole run.
struct RunData {
  data::Dataset train, validation, test;
  Shape image;                             // input of the network; n is 1
  std::vector<double> mean, std;           // for the normalization; empty: there is none
  std::vector<std::string> class_names;    // if the files name them
  std::string note;                        // for the user to know about the files; mostly empty
  std::vector<std::string> warnings = {};  // and should not overlook
  std::optional<DataFacts> facts;          // of a training: FactsOfFiles
};
// The plural noun for the samples of the task, for messages.
const char* SamplesWord(const config::Config& config);
// `info`: the result of InspectData; what it has already found is copied from there.
RunData ReadData(const config::Config& config, const data::DatasetInfo& info);
RunData ReadData(const config::Config& config);
// Facts that checkpoints store about the files, each of which is looked at; none if generated.
std::optional<DataFacts> FactsOfFiles(const RunData& run, const data::DatasetInfo& info);

// Lines about the images that were found to be unusable when the files were listed and that are
// left out of the splits; if a split has many, only the first ones are named.
std::vector<std::string> LinesOfLeftOut(const data::Dataset& train, const data::Dataset& validation,
                                        const data::Dataset& test);
// Warnings about what reading silently changes in pictures (judged by their headers) and about
// classes without a pixel: the part of RunData::warnings that the listing does not give.
std::vector<std::string> WarningsOfFiles(const config::Config& config, const data::Dataset& train,
                                         const data::Dataset& validation, const data::Dataset& test,
                                         const std::vector<std::string>& class_names);
// Logs the same warnings, and the note, for a command without a run.
void LogFileWarnings(const RunData& data, telemetry::Log& log);

// The names of the classes, in the order of the labels; empty if they are unknown.
std::vector<std::string> NamesOfClasses(const config::Config& config, const RunData& data);
// Number of tokens in a sequence (stored as an image with that many rows); 0 for images.
std::int64_t TokensOfSequence(const config::Config& config, const Shape& image);

// What a checkpoint stores about the images. Throws DataError if the list of names is damaged.
InputFacts InputFactsOf(const config::Config& config, const RunData& data);

// The training's loader without what is known only after reading the data (normalization, default
// boxes); this is enough to compute the size of images.
data::LoaderSpec TrainChanges(const config::Config& config);
data::LoaderSpec TrainLoader(const config::Config& config, const RunData& data);
// mean, std: of the normalization, as in RunData.
data::LoaderSpec EvaluationLoader(const config::Config& config, const std::vector<double>& mean,
                                  const std::vector<double>& std);
data::LoaderSpec EvaluationLoader(const config::Config& config, const RunData& data);

// What `init_scale: auto` looks at before the first step: the largest |gradient| that the loss
// gives at S = 1 over the batch with which training starts, in fp32. One forward pass, and for
// tasks other than classification a backward pass: the graph's running statistics move and must be
// initialized afterwards. Each process of a team looks at its part.
double LargestLogitGradient(const config::Config& config, const RunData& data, graph::Graph& graph,
                            backend::Backend& backend, step::Team& team);

// Largest value of the narrowest format that any gradient is stored in.
double NarrowestGradient(const graph::Graph& graph);

// --- Class weights ---

// Whether a run has to compute class weights before its network is made.
bool ComputesClassWeights(const config::Config& config);

struct ClassWeights {
  std::vector<double> values;         // one a class of the network
  std::string text;                   // a line for the log
  std::vector<std::string> warnings;  // classes that no pixel has
  // Training images that were not counted, since they cannot be used (data.on_broken: skip).
  std::vector<data::BrokenImage> left_out;
};
// Computes them from the label images of the training images, without those held out.
ClassWeights ComputeClassWeights(const config::Config& config, const RunData& data);
// The weights in the newest readable checkpoint of a run's folder; empty: there is none.
std::vector<double> StoredClassWeights(const std::string& run_folder);

// --- Several processes ---

// Collective. Throws, in all processes, an error that names the first process that differs from
// rank 0, and what differs: ConfigError (configuration, except for places of files and threads,
// which may differ), DataError (images, labels, the checkpoint to resume from, weights),
// DeviceError (program, instruction set).
void CheckConfigConsistency(const config::Config& config, step::Team& team);
// step: of the checkpoint that a resumed run goes on from, -1 without one. Called before anything
// depends on it. done: the run is finished.
void CheckContinuation(std::int64_t step, bool done, step::Team& team);
void CheckConsistency(const RunData& data, const graph::Graph& graph, backend::Backend& backend,
                      step::Team& team);

// The GPUs that a process sees, as a message.
// Plain data of a fixed size, because it travels as bytes.
struct VisibleDevices {
  static constexpr int kMost = 64;
  int count = 0;
  std::array<backend::CudaDeviceId, kMost> ids = {};
};

// Returns for each rank the number that its GPU has in that process: the first GPU, of those that
// it sees from number `first` on, that no lower rank of its node has taken. -1: none is left.
// Processes may see the same GPUs, or each only its own (CUDA_VISIBLE_DEVICES).
std::vector<int> AssignDevices(const std::vector<VisibleDevices>& visible,
                               const std::vector<int>& nodes, int first);

// The process's own device, and whether all have one.
struct DeviceOfSeveral {
  int index = -1;
  // Why some process cannot use a GPU of its own (for the first such process, with what to do about
  // it); the same text in all processes. Empty: all have one.
  std::string why_not;
};
// Collective.
DeviceOfSeveral FindDevice(const config::DeviceConfig& device, step::Team& team);

}  // namespace ada::run
