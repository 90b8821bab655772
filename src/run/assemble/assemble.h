// From the configuration to the parts of a run: each function turns one section into the types of
// another module. Those modules do not know the configuration; only this file maps the names.
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
#include "run/assemble/update_rule.h"
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
void TellOfFiles(const RunData& data, telemetry::Log& log);

// The names of the classes, in the order of the labels; empty if they are unknown.
std::vector<std::string> NamesOfClasses(const config::Config& config, const RunData& data);
// The class's name, or its number if it has none.
std::string ClassName(const std::vector<std::string>& names, int label);

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

// Whether training images may be mixed and have two labels.
bool Mixes(const config::Config& config);

// Whether the run observes tensors that a fused op never stores (dumps, probes of y, operands of
// log.what_if): then nothing is fused, which changes no bit of the results.
bool WatchesEverything(const config::Config& config);
// Whether it observes every dx that is rounded (probes of dx): then no batch norm is recomputed by
// the layer that reads it (RecomputedNorm), which changes no bit of the results.
bool ProbesGradients(const config::Config& config);
// Gives a graph the loss that the run trains with: label smoothing, class weights, mixed images.
// Every graph whose gradients are compared with the run's needs it.
void TakeTrainingLoss(const config::Config& config, graph::GraphSpec& spec);
// The spec of the training graph; `policy` gives the layers' rules. Input n: a micro-batch.
graph::GraphSpec TrainGraph(const config::Config& config, const Shape& image,
                            scaling::Policy& policy);
// Evaluates plain cross-entropy: label smoothing and class weights are for training only.
graph::GraphSpec EvaluationGraph(const config::Config& config, const Shape& image);

// Whether muon updates a parameter itself: a matrix or a stack of matrices whose name one of
// optimizer.match fits.
bool IsMuonMatrix(const config::OptimizerConfig& optimizer, const std::string& name,
                  const std::vector<std::int64_t>& dims);
// The rule of the update (update_rule.h).
inline backend::UpdateRule UpdateRuleOf(const config::Config& config) {
  return UpdateRuleOf(config.optimizer, config.precision);
}
// Whether an entry of optimizer.no_decay matches this parameter.
bool IsExemptFromDecay(const std::string& pattern, const graph::Parameter& parameter);
// A parameter with the factors of optimizer.groups; optimizer.no_decay takes precedence.
optim::OptimizedParameter OptimizedFrom(const config::OptimizerConfig& optimizer,
                                        const graph::Parameter& parameter);
// Those of a graph.
std::vector<optim::OptimizedParameter> OptimizedParameters(const config::OptimizerConfig& optimizer,
                                                           const graph::Graph& graph);

// How many steps a run has.

// Returns the number of batches in an epoch of `images` training images; a smaller last batch
// counts only without data.drop_last.
std::int64_t StepsPerEpoch(const config::Config& config, std::int64_t images);
// Attempts of the whole run: epochs, or train.max_steps where that is less.
std::int64_t TotalSteps(const config::Config& config, std::int64_t steps_per_epoch);

// `init_scale: auto`: looks at the first batch before the first step.

// Largest |gradient| that the loss gives at S = 1 over the batch with which training starts, in
// fp32. One forward pass, and for tasks other than classification a backward pass: the graph's
// running statistics move and must be initialized afterwards. Each process of a team looks at its
// part.
double LargestLogitGradient(const config::Config& config, const RunData& data, graph::Graph& graph,
                            backend::Backend& backend, step::Team& team);

// Largest value of the narrowest format that any gradient is stored in.
double NarrowestGradient(const graph::Graph& graph);

}  // namespace ada::run
