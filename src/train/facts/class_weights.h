// train.class_weights: median_frequency: found once, at the start of a run.
#pragma once
#include <string>
#include <vector>

#include "config/config.h"
#include "train/assemble/assemble.h"

namespace ada::train {

// Whether a run needs them before its network is made.
bool ComputesClassWeights(const config::Config& config);

struct ClassWeights {
  std::vector<double> values;         // one a class of the network
  std::string text;                   // a line for the log
  std::vector<std::string> warnings;  // classes that no pixel has
  // Training images that were not counted, since they cannot be used (data.on_broken: skip).
  std::vector<data::BrokenImage> left_out;
};
// From the label images of the training images, those held back left out.
ClassWeights ComputeClassWeights(const config::Config& config, const RunData& data);
// Those that the newest readable checkpoint in the folder of a run holds; none: there is none.
std::vector<double> StoredClassWeights(const std::string& run_folder);

}  // namespace ada::train
