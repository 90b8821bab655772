// Weights are by median frequency balancing (Eigen and Fergus, ICCV 2015): rare classes weigh more
// in the loss. A run that is resumed takes them from its checkpoint instead of counting pixels
// again.
#include "data/segmentation/label_files.h"
#include "error.h"
#include "io/text.h"
#include "run/assemble/assemble.h"
#include "run/checkpoint/checkpoint.h"

namespace ada::run {

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
