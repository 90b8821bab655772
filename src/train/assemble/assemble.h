// From the configuration to the parts of a run: each function turns one section into what a room
// understands. The rooms do not know the configuration; this file is where names meet.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "config/config.h"
#include "data/loader.h"
#include "graph/graph.h"
#include "optim/optimizer.h"
#include "scaling/policies/policy.h"
#include "telemetry/log.h"
#include "train/distributed/team.h"
#include "train/facts/data_facts.h"

namespace ada::train {

// The backend that device.kind asks for and, in one line, which it is and why. DeviceError where
// the wanted one is missing.
struct ChosenBackend {
  std::unique_ptr<backend::Backend> backend;
  std::string reason;
  int threads = 1;
  bool has_own_memory = false;  // a GPU
};
// Processes of a team make theirs together.
ChosenBackend MakeBackend(const config::DeviceConfig& device, Team& team = Team::OfOne());

// What the section `data` says of files whose layout leaves it open.
data::FileChoices ChoicesOf(const config::Config& config);

// What is known of the images before they are read: the shape of the network's input, how many
// images there are after `limit` and `validation`. Throws DataError, or ConfigError where the
// configuration does not fit them.
data::DatasetInfo InspectData(const config::Config& config);
// The configuration with what only the data says: model.classes, where it is not given. ConfigError
// where there are more classes than the network has outputs.
config::Config Completed(config::Config config, const data::DatasetInfo& info);

// The images of a run, limited and split as `data:` says. `validation` has no images where none are
// held back.
// Made by ReadData before the session and unchanged after that: loaders, evaluators and probes keep
// references to its data sets for the whole run.
struct RunData {
  data::Dataset train, validation, test;
  Shape image;                             // that the network takes; n is 1
  std::vector<double> mean, std;           // of the normalization; empty: none
  std::vector<std::string> class_names;    // where the files say them
  std::string note;                        // what the user should know of the files; mostly empty
  std::vector<std::string> warnings = {};  // and should not overlook
  std::optional<DataFacts> facts;          // of a training: FactsOfFiles
};
// What samples of the task are called, several of them.
const char* SamplesWord(const config::Config& config);
// `info`: what InspectData said; what it found already is taken from there.
RunData ReadData(const config::Config& config, const data::DatasetInfo& info);
RunData ReadData(const config::Config& config);
// What checkpoints remember of the files, each of which is looked at; nothing of made-up images.
std::optional<DataFacts> FactsOfFiles(const RunData& run, const data::DatasetInfo& info);

// Lines about the images that were found to be unusable when the files were listed, and that the
// splits go without; of many in a split the first.
std::vector<std::string> LinesOfLeftOut(const data::Dataset& train, const data::Dataset& validation,
                                        const data::Dataset& test);
// What reading makes of pictures without being asked, from their headers, and classes that no pixel
// has: what RunData::warnings has besides those of the files' listing.
std::vector<std::string> WarningsOfFiles(const config::Config& config, const data::Dataset& train,
                                         const data::Dataset& validation, const data::Dataset& test,
                                         const std::vector<std::string>& class_names);
// The same, and the note, for a command without a run.
void TellOfFiles(const RunData& data, telemetry::Log& log);

// What the classes are called, in the order of the labels; empty where nobody says it.
std::vector<std::string> NamesOfClasses(const config::Config& config, const RunData& data);
// The class's name, its number where it has none.
std::string ClassName(const std::vector<std::string>& names, int label);

// Tokens of a sequence, which counts as an image of so many rows; 0: images are images.
std::int64_t TokensOfSequence(const config::Config& config, const Shape& image);

// What a checkpoint carries of the images. DataError where the list of names is damaged.
InputFacts InputFactsOf(const config::Config& config, const RunData& data);

data::LoaderSpec TrainLoader(const config::Config& config, const RunData& data);
// mean, std: of the normalization, as in RunData.
data::LoaderSpec EvaluationLoader(const config::Config& config, const std::vector<double>& mean,
                                  const std::vector<double>& std);
data::LoaderSpec EvaluationLoader(const config::Config& config, const RunData& data);

// Whether training images may be mixed and have two labels.
bool Mixes(const config::Config& config);

// Whether the run observes tensors that a fused op never stores (dumps, probes of y, operands of
// log.what_if): then nothing is fused, which changes no bit.
bool WatchesEverything(const config::Config& config);
// Whether it observes every dx that is rounded (probes of dx): then no batch norm is left to the
// layer that reads it, which changes no bit.
bool ProbesGradients(const config::Config& config);
// Gives a graph the loss that the run trains with: smoothed labels, weights of classes, pictures
// mixed. Any graph whose gradients are compared with the run's needs it.
void TakeTrainingLoss(const config::Config& config, graph::GraphSpec& spec);
// The graph that trains; rules of layers come from `policy`. Input n: images of one micro-batch.
graph::GraphSpec TrainGraph(const config::Config& config, const Shape& image,
                            scaling::Policy& policy);
// Evaluates plain cross-entropy: label smoothing and class weights are for training alone.
graph::GraphSpec EvaluationGraph(const config::Config& config, const Shape& image);

// optimizer.kind and its numbers, with what precision.masters and optimizer_state say.
backend::UpdateRule UpdateRuleOf(const config::Config& config);
// Whether an entry of optimizer.no_decay means this parameter.
bool SparesDecay(const std::string& pattern, const graph::Parameter& parameter);
// With the factors of optimizer.groups; optimizer.no_decay beats them.
std::vector<optim::OptimizedParameter> OptimizedParameters(const config::OptimizerConfig& optimizer,
                                                           const graph::Graph& graph);

// How many steps a run has.

// Batches of an epoch over so many training images; the last one may be smaller, and counts only
// without data.drop_last.
std::int64_t StepsPerEpoch(const config::Config& config, std::int64_t images);
// Attempts of the whole run: epochs, or train.max_steps where that is less.
std::int64_t TotalSteps(const config::Config& config, std::int64_t steps_per_epoch);

// `init_scale: auto`: looks at the first batch before the first step.

// Largest |gradient| that the loss gives at S = 1 over the batch with which training starts, in
// fp32. One forward pass, and for tasks other than classification a backward pass: the graph's
// running statistics move and must be initialized afterwards. Each process of a team looks at its
// part.
double LargestLogitGradient(const config::Config& config, const RunData& data, graph::Graph& graph,
                            backend::Backend& backend, Team& team);

// Largest value of the narrowest format that any gradient is stored in.
double NarrowestGradient(const graph::Graph& graph);

}  // namespace ada::train
