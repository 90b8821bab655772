// `adaptive`: the logit gradient's scale is constant, each layer decides its own alpha (rules.h).
// This file only resolves settings into rules; what a layer remembers lives in its LayerScaler.
#include <utility>

#include "error.h"
#include "io/text.h"
#include "number/number_format.h"
#include "scaling/policies/common_keys.h"
#include "scaling/policies/policies.h"
#include "scaling/rules/inverse_erf.h"

namespace ada::scaling {
namespace {

// u_min of the layer's rule. The authors' program uses another value for fp16, stored in fp32.
double SmallestMagnitude(const AdaptiveSettings& settings, const LayerInfo& layer) {
  const double own = settings.u_min.value_or(0);
  if (own <= 0 && !settings.reference) return layer.u_min;
  const bool fp16 = layer.u_min == kFp16.smallest_subnormal() && layer.u_max == kFp16.largest();
  const double value = own > 0 ? own : fp16 ? 6.0e-8 : layer.u_min;
  return settings.reference ? static_cast<float>(value) : value;
}

// Has no state: settings are looked up by the layer's name when the graph is built, and the backend
// turns statistics into scales. The lookup copies what it needs, so that the policy may outlive the
// settings it was made from.
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
    // Constants of the rule that backends do not compute, as they need the inverse error function.
    rule.t = GaussianThreshold(settings.underflow_target);
    rule.phi_inverse = NormalQuantile(settings.underflow_target);
    rule.u_min = SmallestMagnitude(settings, layer);
    rule.u_max = layer.u_max;
    rule.scale_upper_bound = settings.scale_upper_bound;
    rule.accum_upper_bound = settings.accum_upper_bound;
    const double fan = settings.fan == Fan::kExact ? layer.fan_exact : layer.fan_reference;
    rule.fan = layer.has_weight ? fan : 1;
    rule.headroom_bits = settings.headroom_bits;
    rule.has_weight = layer.has_weight;
    rule.power_of_two = settings.power_of_two;
    rule.reference = settings.reference;
    rule.fp16_gradients = layer.fp16_gradients;
    rule.update_interval = settings.update_interval;
    // S of a table is a state that never moves: the graph starts with it (Builder::AskRules).
    if (settings.total_scale) {
      rule.method = LayerMethod::kState;
      rule.fixed_scale = CheckedScale("scaling.layers[].total_scale", *settings.total_scale);
    }
    ADA_CHECK(rule.update_interval >= 1 && rule.fixed_scale > 0 && rule.fan > 0);
    return rule;
  }

  double LayerScale(const std::string& layer) const override {
    return lookup_(layer).total_scale.value_or(1);
  }

  // S of the logit gradient never moves; an attempt that overflows is skipped, and each layer
  // decides anew in the next.
  ScaleUpdate Update(const StepOutcome& attempt) override {
    return {attempt.overflow ? Action::kSkip : Action::kUpdate, init_scale_, init_scale_, "", ""};
  }
  StateMap SaveState() const override { return {}; }
  void LoadState(const StateMap& state) override { ExpectKeys(state, name(), {}); }
  bool ConstantScale() const override { return true; }
  bool OwnsLayerScales() const override { return true; }
  bool ScalesBatchNorms() const override { return lookup_("").batch_norm; }
  bool ScalesAttention() const override { return lookup_("").attention; }
  bool FollowsReference() const override { return lookup_("").reference; }  // of no single layer
  // In the authors' program a branch has a method as layers have, and rescales only under
  // approx_range, with or without the log-normal model. Here it has that of the layer before it.
  bool RescalesBranches(const std::string& layer) const override {
    const AdaptiveSettings settings = lookup_(layer);
    return !settings.reference || settings.method == LayerMethod::kApproxRange ||
           settings.method == LayerMethod::kLognormal;
  }

 private:
  float init_scale_;
  AdaptiveLookup lookup_;
};

struct MethodText {
  LayerMethod method;
  const char *meaning, *source;
  std::string constants;
};

// The lines of `ada-train policies`, one for each method.
std::vector<std::string> Describe() {
  const AdaptiveSettings s;
  const char* fan = s.fan == Fan::kExact ? "exact" : "reference";
  const char* power_of_two = s.power_of_two ? "true" : "false";
  const std::string bounds = "underflow_target " + ShortestText(s.underflow_target) +
                             ", scale_upper_bound " + ShortestText(s.scale_upper_bound) +
                             ", accum_upper_bound " + ShortestText(s.accum_upper_bound) +
                             ", power_of_two " + power_of_two + ", update_interval " +
                             std::to_string(s.update_interval) + ", fan " + fan;
  const std::string unbounded = std::string("power_of_two true, update_interval 1, fan ") + fan;
  const char* reference = "kumasento/gradient-scaling ada_loss/core.py";
  const MethodText methods[] = {
      {LayerMethod::kApproxRange,
       "each layer takes the alpha that keeps its underflow at the target under a Gaussian model",
       "Zhao et al., IJCAI 2020, kumasento/gradient-scaling ada_loss/core.py", bounds},
      {LayerMethod::kLognormal,
       "a cast takes it under a log-normal model of the gradient; a layer with a weight as "
       "approx_range",
       reference, bounds},
      {LayerMethod::kAbsRange,
       "from the smallest and largest magnitudes of gradient and weight; no upper bounds",
       reference, unbounded},
      {LayerMethod::kElementWiseRange,
       "from the smallest and largest products of gradient and weight; no upper bounds", reference,
       unbounded},
      {LayerMethod::kExactRange,
       "from the exponents of the gradients that the layer really produced, without a model",
       "ada-train's own", "headroom_bits " + ShortestText(s.headroom_bits) + ", " + bounds},
      {LayerMethod::kFixed, "each layer multiplies by its own constant", reference,
       "scale 1, power_of_two true"},
  };
  std::vector<std::string> lines;
  for (const MethodText& m : methods)
    lines.push_back(std::string("adaptive, method ") + MethodName(m.method) + ": " + m.meaning +
                    "; " + m.source + "; init_scale 1, " + m.constants);
  return lines;
}

}  // namespace

std::unique_ptr<Policy> MakeAdaptive(double init_scale, AdaptiveLookup lookup) {
  return std::make_unique<AdaptivePolicy>(CheckedScale("scaling.init_scale", init_scale),
                                          std::move(lookup));
}

const PolicyKind kAdaptive = {
    "adaptive", [](Settings& settings) { settings.init_scale = settings.init_scale.value_or(1); },
    [](const Settings& settings) {
      return MakeAdaptive(settings.init_scale.value_or(1), [settings](const std::string& layer) {
        return AdaptiveOf(settings, layer);
      });
    },
    Describe};

}  // namespace ada::scaling
