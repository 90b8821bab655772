// `adaptive`: the logit gradient's scale is constant, each layer decides its own alpha (rules.h).
// This file only resolves settings into rules; what a layer remembers lives in its LayerScaler.
#include <cmath>

#include "core/error.h"
#include "scaling/inverse_erf.h"
#include "scaling/policy.h"
#include "scaling/scale_check.h"
#include "scaling/state_text.h"

namespace ada::scaling {
namespace {

class AdaptivePolicy final : public Policy {
 public:
  AdaptivePolicy(float init_scale, AdaptiveLookup lookup)
      : init_scale_(init_scale), lookup_(std::move(lookup)) {}

  std::string_view name() const override { return "adaptive"; }
  double Scale() const override { return init_scale_; }

  LayerRule RuleFor(const LayerInfo& layer) const override {
    const AdaptiveSettings settings = lookup_(layer.name);
    LayerRule rule;
    rule.method = settings.method;
    rule.fixed_scale = settings.scale;
    rule.t = GaussianThreshold(settings.underflow_target);
    rule.u_min = settings.u_min > 0 ? settings.u_min : layer.u_min;
    rule.u_max = layer.u_max;
    rule.scale_upper_bound = settings.scale_upper_bound;
    rule.accum_upper_bound = settings.accum_upper_bound;
    rule.fan = settings.fan_exact ? layer.fan_exact : layer.fan_reference;
    rule.power_of_two = settings.power_of_two;
    rule.update_interval = settings.update_interval;
    ADA_CHECK(rule.update_interval >= 1 && rule.fixed_scale > 0 && rule.fan > 0);
    return rule;
  }

  ScaleChange Update(bool /*overflow*/) override { return {init_scale_, init_scale_, ""}; }
  StateMap SaveState() const override { return {}; }
  void LoadState(const StateMap& state) override { ExpectKeys(state, name(), {}); }

 private:
  float init_scale_;
  AdaptiveLookup lookup_;
};

}  // namespace

std::unique_ptr<Policy> MakeAdaptive(double init_scale, AdaptiveLookup lookup) {
  return std::make_unique<AdaptivePolicy>(CheckedScale("scaling.init_scale", init_scale),
                                          std::move(lookup));
}

}  // namespace ada::scaling
