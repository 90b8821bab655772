// A loss-scaling policy driven by the histograms of a run that had another one: the real policy
// object, told what its attempts would have come to.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "config/config.h"
#include "scaling/policies/policy.h"
#include "what_if/scale_path.h"
#include "what_if/step_histograms.h"

namespace ada::what_if {

// Used by Scenario alone. Steps come in rising order; its state goes into checkpoints with that of
// the run.
class ScenarioPolicy {
 public:
  // `scaling` is as read; defaults are filled in here. Throws ConfigError, beginning with its
  // place, for what cannot be judged: `reference` under adaptive.
  ScenarioPolicy(scaling::Settings scaling, const config::ModelConfig& model);
  ~ScenarioPolicy();

  // Makes the attempts up to `step`, all as this step's histograms tell, and returns the scale that
  // each tensor would have carried in `step` itself: dx and dy by the policy, y, w and dw as
  // recorded.
  std::vector<double> Advance(std::int64_t step, const StepHistograms& histograms);
  // Says why the policy would have ended the run; empty while it goes on.
  const std::string& ended() const { return ended_; }

  // The policy's state, the last step, and why it ended.
  scaling::StateMap SaveState() const;
  void LoadState(const scaling::StateMap& state);  // throws DataError as Policy::LoadState does

 private:
  std::vector<double> ScalesNow(const StepHistograms& histograms) const;
  ScalePath::Scales PathNow(const StepHistograms& histograms) const;
  scaling::StepOutcome OutcomeAt(const StepHistograms& histograms,
                                 const std::vector<double>& scales) const;
  void MarkLayers(const StepHistograms& histograms, const std::vector<double>& scales,
                  scaling::StepOutcome& outcome) const;
  std::vector<double> Key() const;

  std::unique_ptr<scaling::Policy> policy_;
  ScalePath path_;
  std::map<std::string, scaling::LayerRule> rules_;  // by chooser
  std::int64_t last_step_ = 0;
  std::string ended_;
};

}  // namespace ada::what_if
