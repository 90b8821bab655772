// The parts of `blame`: which forks of a run there are, how far apart two of them end, and what is
// a finding. blame.cpp calls Suspects and Judge in this order; forks.cpp runs and remembers
// trainings.
#pragma once
#include <string>
#include <vector>

#include "run/fork/fork.h"
#include "study/commands.h"

namespace ada::study {

// What one fork keeps in fp32, and what came of it: a row of the CSV.
// Made by Suspects with its names; Judge fills in the numbers.
struct Suspect {
  std::string layer, tensor;        // "all" where it is not one
  std::vector<std::string> layers;  // that are put into fp32 whole; empty: `tensor` of all layers
  bool rounds = true;               // false: nothing of it is rounded anyway
  double effect = 0, noise = 0;
  bool significant = false;

  std::string name() const { return tensor == "all" ? layer : tensor; }
  std::string fork() const {
    return (layers.empty() ? "tensor " : layers.size() > 1 ? "block " : "layer ") + name();
  }
};
// Returns what can be blamed, in the order of the network.
std::vector<Suspect> Suspects(const run::ForkSource& source, BlameOptions::By by);
// Returns the formats of the run with the suspect in fp32.
config::PrecisionConfig Freed(const config::PrecisionConfig& precision, const Suspect& suspect);

// How far apart two forks end. For losses it is the root mean square of their differences over the
// steps; for gradients the root mean square, over the layers, of |a - b| / max(|a|, |b|), in L2
// norms of all parameters of a layer: one of them whose gradient is nothing but errors (a bias
// before a batch norm) says no more than it weighs. Infinite where one is finite and the other not.
double Distance(const run::ForkResult& a, const run::ForkResult& b);

// Runs the forks that it takes, or takes those that an earlier command kept in the run's folder.
// Fills in effect, noise and significant, and puts those that are significant first, the worst of
// them before the others. Returns the trouble of the fork with the run's own formats.
std::string Judge(const run::ForkSource& source, const BlameOptions& options,
                  std::vector<Suspect>& suspects, telemetry::Log& log);

}  // namespace ada::study
