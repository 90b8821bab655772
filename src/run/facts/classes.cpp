// What the classes of the data are called, and how much each weighs. Weights are by median
// frequency balancing (Eigen and Fergus, ICCV 2015): rare classes weigh more in the loss. A run
// that is resumed takes them from its checkpoint instead of counting pixels again.
#include <algorithm>

#include "data/segmentation/label_survey.h"
#include "error.h"
#include "io/shown_text.h"
#include "io/text.h"
#include "run/checkpoint/checkpoint.h"
#include "run/facts/class_weights.h"
#include "run/facts/data_facts.h"

namespace ada::run {
namespace {

constexpr std::size_t kNamedClasses = 8;  // of each list, in a message

// Names as a checkpoint of any version may hold them.
std::vector<std::string> Comparable(const std::vector<std::string>& names) {
  std::vector<std::string> shown;
  for (const std::string& name : names) shown.push_back(Visible(name));
  return shown;
}

std::string NamedClass(const std::vector<std::string>& names, std::size_t label) {
  return label < names.size() ? names[label] : "none";
}

// Advice on how to name the classes.
std::string AdviceOn(const config::Config& config) {
  switch (data::FactsOf(config.data.dataset).origin) {
    case data::Origin::kFolder:
      return "give the class folders the names of the checkpoint";
    case data::Origin::kLabelImages:
    case data::Origin::kBoxes:
      return "name them in data.class_names as the checkpoint has them";
    case data::Origin::kTensors:
      return "name them in the file's metadata as the checkpoint has them";
    default:
      return "put the names of the checkpoint back";
  }
}

}  // namespace

std::vector<std::string> NamesOfClasses(const config::Config& config,
                                        const data::DatasetInfo& info) {
  if (info.found) return info.found->class_names;
  if (!data::FactsOf(config.data.dataset).layout) return {};
  try {
    return data::ClassNames(config.data.dataset, config.data.path);
  } catch (const DataError&) {  // a damaged list of names: a run goes without, and says so itself
    return {};
  }
}

// A list that is longer, shorter or in another order is refused at the first label that differs.
void RequireSameClasses(const std::string& path, const std::optional<InputFacts>& known,
                        const config::Config& config, const data::DatasetInfo& info) {
  if (!known) return;
  const std::vector<std::string> then = Comparable(known->class_names);
  const std::vector<std::string> now = Comparable(NamesOfClasses(config, info));
  if (then.empty() || now.empty() || then == now) return;
  const auto [one, other] = std::mismatch(then.begin(), then.end(), now.begin(), now.end());
  const auto label = static_cast<std::size_t>(one - then.begin());
  throw DataError(
      path + ": the network was trained with the classes " + FirstNames(then, kNamedClasses) +
      ", and the data (" + config.data.path + ") have " + FirstNames(now, kNamedClasses) +
      ": class " + std::to_string(label) + " is " + NamedClass(then, label) + " there and " +
      NamedClass(now, label) +
      " here, so labels mean other classes; expected the same names in the same order: " +
      AdviceOn(config));
}

void RequireClassesOfRun(const config::Config& config, const data::DatasetInfo& info) {
  const std::string folder = config.output + "/checkpoints";
  for (const std::int64_t step : ListCheckpoints(folder).paired) {
    const std::string path = CheckpointStem(folder, step) + ".json";
    std::optional<InputFacts> known;
    try {
      known = ReadStateText(path).state.input;
    } catch (const DataError&) {  // the search for a checkpoint to resume from reports the problem
      continue;
    }
    return RequireSameClasses(path, known, config, info);
  }
}

bool ComputesClassWeights(const config::Config& config) {
  return config.train.class_weights.kind == config::ClassWeightsConfig::Kind::kMedianFrequency;
}

ClassWeights ComputeClassWeights(const config::Config& config, const RunData& data) {
  const std::vector<std::string> names = NamesOfClasses(config, data);
  ClassWeights weights;
  std::vector<int> unseen;
  const bool skips = config.data.on_broken == config::BrokenImages::kSkip;
  weights.values = data::MedianFrequencyWeights(data.train, data::UnseenClass::kWeightOne, &unseen,
                                                skips ? &weights.left_out : nullptr);
  const auto counted = data.train.images() - static_cast<std::int64_t>(weights.left_out.size());
  // Outputs beyond the classes of the data set, which no pixel has either.
  weights.values.resize(static_cast<std::size_t>(config.model.classes), 1);
  weights.text = "class weights (median_frequency of " + Counted(counted, "label image") + "):";
  for (std::size_t k = 0; k < weights.values.size(); ++k)
    weights.text += (k == 0 ? " " : ", ") + ClassName(names, static_cast<int>(k)) + " " +
                    Formatted("%.4g", weights.values[k]);
  for (const int label : unseen)
    weights.warnings.push_back("train.class_weights: no training pixel is of class " +
                               ClassName(names, label) + "; its weight is 1");
  return weights;
}

// From the newest on, the first that can be read.
std::vector<double> StoredClassWeights(const std::string& run_folder) {
  const std::string folder = run_folder + "/checkpoints";
  for (const std::int64_t step : ListCheckpoints(folder).paired) {
    try {
      return ReadCheckpointState(CheckpointStem(folder, step)).class_weights;
    } catch (const DataError&) {  // the search for a checkpoint to resume from reports the problem
    }
  }
  return {};
}

}  // namespace ada::run
