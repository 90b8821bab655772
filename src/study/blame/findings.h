// The parts of `blame`: which forks of a run there are, how far apart two of them end, and what is
// a finding. blame.cpp calls Suspects and Judge in this order; forks.cpp runs and remembers
// trainings.
#pragma once
#include <map>
#include <set>
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

// Forks by name, each computed once; losses and troubles are kept in the run's folder, so that a
// command that was stopped goes on.
// References that Of returns stay valid as long as the object, since a map does not move its
// elements. Gradients are too large to keep on disk: only losses are.
class Forks {
 public:
  Forks(const run::ForkSource& source, const BlameOptions& options, telemetry::Log& log);
  // `spec` has precision, twin and units.
  const run::ForkResult& Of(const std::string& name, run::ForkSpec spec);
  // Says that this fork will be asked for, so that progress knows how many there are.
  void Expect(const std::string& name) { expected_.insert(name); }

 private:
  std::string Progress(const std::string& name) const;
  void Load();
  void Save();
  void Leave(const std::string& problem);

  const run::ForkSource& source_;
  const BlameOptions& options_;
  telemetry::Log& log_;
  std::string file_, key_;
  bool keeps_;
  std::map<std::string, run::ForkResult> results_;
  std::set<std::string> expected_;
  std::size_t made_ = 0;  // by this command, in so many seconds
  double seconds_ = 0;
};

// The fork with the run's own formats.
const run::ForkResult& AsItWas(const run::ForkSource& source, Forks& forks);
// Fills in effect, noise and significant, and puts those that are significant first, the worst of
// them before the others.
void Judge(const run::ForkSource& source, Forks& forks, std::vector<Suspect>& suspects);

}  // namespace ada::study
