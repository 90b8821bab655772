// `adaptive`: the logit gradient's scale is constant, each layer decides its own alpha (rules.h).
// This file only resolves settings into rules; what a layer remembers lives in its LayerScaler.
#include <utility>

#include "core/error.h"
#include "core/number_format.h"
#include "scaling/policies/policy.h"
#include "scaling/rules/inverse_erf.h"
#include "scaling/rules/scale_check.h"
#include "scaling/rules/state_text.h"

namespace ada::scaling {
namespace {

// u_min of the layer's rule. The authors' program has its own for fp16 and holds it in fp32.
double SmallestMagnitude(const AdaptiveSettings& settings, const LayerInfo& layer) {
  if (settings.u_min <= 0 && !settings.reference) return layer.u_min;
  const bool fp16 = layer.u_min == kFp16.smallest_subnormal() && layer.u_max == kFp16.largest();
  const double value = settings.u_min > 0 ? settings.u_min : fp16 ? 6.0e-8 : layer.u_min;
  return settings.reference ? static_cast<float>(value) : value;
}

class AdaptivePolicy final : public Policy {
 public:
  AdaptivePolicy(float init_scale, AdaptiveLookup lookup)
      : init_scale_(init_scale), lookup_(std::move(lookup)) {}

  std::string_view name() const override { return "adaptive"; }
  double Scale() const override { return init_scale_; }

  LayerRule RuleFor(const LayerInfo& layer) override {
    const AdaptiveSettings settings = lookup_(layer.name);
    LayerRule rule;
    rule.method = settings.method;
    rule.fixed_scale = settings.scale;
    rule.underflow_target = settings.underflow_target;
    rule.t = GaussianThreshold(settings.underflow_target);
    rule.phi_inverse = NormalQuantile(settings.underflow_target);
    rule.u_min = SmallestMagnitude(settings, layer);
    rule.u_max = layer.u_max;
    rule.scale_upper_bound = settings.scale_upper_bound;
    rule.accum_upper_bound = settings.accum_upper_bound;
    const double fan = settings.fan_exact ? layer.fan_exact : layer.fan_reference;
    rule.fan = layer.has_weight ? fan : 1;
    rule.headroom_bits = settings.headroom_bits;
    rule.has_weight = layer.has_weight;
    rule.power_of_two = settings.power_of_two;
    rule.reference = settings.reference;
    rule.fp16_gradients = layer.fp16_gradients;
    rule.update_interval = settings.update_interval;
    ADA_CHECK(rule.update_interval >= 1 && rule.fixed_scale > 0 && rule.fan > 0);
    return rule;
  }

  ScaleUpdate Update(const StepOutcome& attempt) override {
    ScaleUpdate verdict;
    verdict.action = attempt.overflow ? Action::kSkip : Action::kUpdate;
    verdict.before = verdict.after = init_scale_;
    return verdict;
  }
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
