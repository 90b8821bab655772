// train.class_weights: median_frequency: the weights are computed once, at the start of a run.
#pragma once
#include <string>
#include <vector>

#include "config/config.h"
#include "run/assemble/assemble.h"

namespace ada::run {

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

}  // namespace ada::run
