// Sums of a batch's micro-batches in a format of few bits (precision.accumulated_gradients): each
// part of a weight gradient is added to what is stored, and the sum rounded once, as a buffer of
// gradients in that format makes it. Under scaling fp8_lm what is stored carries a scale.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "config/config.h"
#include "graph/graph.h"
#include "scaling/rules/sum_scale.h"
#include "step/distributed_gradients.h"

namespace ada::step {

// What moved a scale of fp8_lm down.
struct HalvedMu {
  std::string layer, gradient;  // "fc", "fc.weight"
  double share = 0;             // of its values that saturate
  float before = 1, after = 1;
};

// One for each trainer. The sums live within a batch alone; without the key nothing is done.
class AccumulatedGradients {
 public:
  // `distributed` must outlive it.
  AccumulatedGradients(const config::Config& config, DistributedGradients& distributed);

  bool active() const { return !sums_.empty(); }
  // To be called after each micro-batch's passes, whose draw and `accumulate` tell them apart: adds
  // its gradients to the sums. They become zero, since the next pass adds to them; the last one's
  // (`last`) become the sums. With several processes and scales the last call is collective.
  void Take(const backend::Pass& pass, bool last);
  // To be called when the sums of all processes are made, in attempt `step` (from 1): moves the
  // scales on, and returns those that fell.
  std::vector<HalvedMu> MoveScales(std::int64_t step);
  // What the last batch's additions lost, by layer and of all processes (collective). As of masters
  // (UpdateCounts): `underflow`: a part that was not zero left the sum as it was.
  DistributedGradients::Transport Lost();

  // The scales for checkpoints, by "accumulated:fc.weight"; empty without fp8_lm.
  std::map<std::string, scaling::StateMap> SaveScales() const;
  // Throws DataError. What the map lacks starts anew.
  void LoadScales(const std::map<std::string, scaling::StateMap>& saved);

 private:
  // How a gradient is added up, and what fp8_lm keeps of it. `at`: the scale of what is stored in
  // this batch.
  struct Scaled {
    bool rounds = true;  // false: the sums stay fp32
    scaling::SumScale state;
    float at = 1;
    bool finite = true;  // else the sum is stored as it is
    std::int64_t saturated = 0;
  };
  void Add(const backend::Pass& pass, std::size_t place, bool last);
  float LargestOf(const std::vector<float>& sum, float inverse) const;
  void ShareScales();

  DistributedGradients& distributed_;
  NumberFormat format_;
  NumberGrid grid_;
  bool stochastic_ = false, scales_ = false;
  scaling::SumScaleRule rule_;
  std::vector<std::vector<float>> sums_;  // as gradients are completed
  std::vector<Scaled> scaled_;            // of each
  std::vector<float> part_;
  std::vector<TensorStats> lost_;  // of each
};

}  // namespace ada::step
