// Scenarios: what another format, scale or policy would have lost in a step, judged from the
// histograms of its tensors. The same for log.what_if, while a run goes on, and for
// `ada-train what-if`, afterwards.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "judge/histogram_loss.h"
#include "judge/scale_path.h"
#include "scaling/policies/policy.h"
#include "telemetry/rows.h"

namespace ada::judge {

// A loss-scaling policy driven by the histograms of a run that had another one: the real policy
// object, told what its attempts would have come to. Used by Scenario alone. Steps come in rising
// order; its state goes into checkpoints with that of the run.
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

// A format is taken by every tensor instead of its own, a scale carried by every tensor. A policy
// is driven as if each judged step stood for all attempts since the one before: dx and dy carry
// what it would have decided by then, y, w and dw what they carried in the run. Each tensor is
// judged by itself: its values are those of the run, whatever was lost before it.
class Scenario {
 public:
  // For an entry whose format, if it has one, is plain (operand_loss.h judges block-scaled ones).
  // `model`: of the run, for policies that choose a scale for each layer. Throws ConfigError for
  // what cannot be judged: a scale next to a policy, `reference` under adaptive.
  Scenario(const config::WhatIfConfig& config, const config::ModelConfig& model);
  ~Scenario();

  // The name is the configured one, else made of the choice (config::NameOf), else "as recorded".
  const std::string& name() const { return name_; }
  // Returns one row a tensor, in order. Steps must come in their order. There are no rows from the
  // step on in which the policy would have ended the run.
  std::vector<telemetry::WhatIfRow> Judge(std::int64_t step, std::int64_t epoch,
                                          const std::vector<HistogramOfTensor>& tensors);
  // Says why the policy would have ended the run; empty: it would not.
  std::string ended() const { return policy_ ? policy_->ended() : ""; }

  // What a scenario remembers from step to step, as text that reads back exactly. LoadState returns
  // false, and changes nothing, where the state is that of another scenario, which had the same
  // name; it throws DataError where it is no state of this one.
  scaling::StateMap SaveState() const;
  bool LoadState(scaling::StateMap state);

 private:
  std::string name_;
  std::string choice_;  // config::NameOf
  std::optional<NumberFormat> format_;
  std::optional<double> scale_;
  std::unique_ptr<ScenarioPolicy> policy_;  // null: none is asked about
};

}  // namespace ada::judge
