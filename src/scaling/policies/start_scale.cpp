// Chooses the start of `init_scale: auto` by a policy around the one that the settings name.
#include "scaling/policies/start_scale.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "error.h"
#include "io/text.h"

namespace ada::scaling {
namespace {

constexpr char kStateKey[] = "init_scale";
constexpr double kLeastAfterOverflow = 1;
constexpr double kWide = 0x1p120;  // u_max of formats with fp32's exponent range is above this

// An upper bound that the settings contain; nullopt: there is no such bound.
struct Ceiling {
  std::optional<double> scale;
  const char* key;
};
Ceiling CeilingOf(const Settings& settings) {
  if (settings.policy == "adaptive") {
    const LayerMethod method = settings.adaptive.method;
    if (method != LayerMethod::kApproxRange && method != LayerMethod::kLognormal) return {};
    return {settings.adaptive.accum_upper_bound, "scaling.accum_upper_bound"};
  }
  const bool bounded = settings.max_scale && *settings.max_scale > 0;
  return {bounded ? settings.max_scale : std::nullopt, "scaling.max_scale"};
}

// Wraps the policy that the settings name and forwards every call. The wrapped policy is made with
// the default start, and again when Start is called.
class AutoStartPolicy final : public Policy {
 public:
  AutoStartPolicy(Settings settings, PolicyMaker make)
      : settings_(std::move(settings)), make_(make) {
    Make();
  }

  std::string_view name() const override { return policy_->name(); }
  double Scale() const override { return policy_->Scale(); }
  LayerRule RuleFor(const LayerInfo& layer) override {
    layers_.push_back(layer);
    return policy_->RuleFor(layer);
  }
  double LayerScale(const std::string& layer) const override { return policy_->LayerScale(layer); }
  StatsRequest RequiredStats() const override { return policy_->RequiredStats(); }
  Action OnOverflow() const override { return policy_->OnOverflow(); }
  ScaleUpdate Update(const StepOutcome& attempt) override {
    ScaleUpdate update = policy_->Update(attempt);
    // Policies whose scale moves will find a smaller one themselves.
    const bool stays = policy_->ConstantScale() && !policy_->OwnsLayerScales();
    if (!attempt.overflow || !stays || update.before <= kLeastAfterOverflow) return update;
    Start(update.before / 2);
    update.after = Scale();
    update.reason = "init_scale: auto was too high, since gradients are not finite; it is halved";
    return update;
  }
  bool ConstantScale() const override {
    return policy_->ConstantScale() && policy_->OwnsLayerScales();
  }
  bool OwnsLayerScales() const override { return policy_->OwnsLayerScales(); }
  bool ScalesBatchNorms() const override { return policy_->ScalesBatchNorms(); }
  bool ScalesAttention() const override { return policy_->ScalesAttention(); }
  bool FollowsReference() const override { return policy_->FollowsReference(); }
  bool RescalesBranches(const std::string& layer) const override {
    return policy_->RescalesBranches(layer);
  }
  bool CountsAboveEdge() const override { return policy_->CountsAboveEdge(); }

  bool AwaitsStart() const override { return true; }
  void Start(double scale) override {
    settings_.init_scale = scale;
    Make();
  }

  StateMap SaveState() const override {
    StateMap state = policy_->SaveState();
    state[kStateKey] = ToHex(settings_.init_scale.value());
    return state;
  }
  void LoadState(const StateMap& state) override {
    StateMap rest = state;
    if (rest.erase(kStateKey) == 0)
      throw DataError("scaling state of '" + settings_.policy + "': " + kStateKey + " is missing");
    const double scale = ReadHex(state, kStateKey);
    if (!(scale > 0 && std::isfinite(static_cast<float>(scale))))
      throw DataError("scaling state of '" + settings_.policy + "': " + kStateKey + " is no scale");
    Start(scale);
    policy_->LoadState(rest);
  }

 private:
  // Rules of layers do not depend on init_scale: those from the first policy stay valid.
  void Make() {
    Settings settings = settings_;
    settings.auto_init_scale = false;
    policy_ = make_(settings);
    for (const LayerInfo& layer : layers_) policy_->RuleFor(layer);
  }

  Settings settings_;
  PolicyMaker make_;
  std::vector<LayerInfo> layers_;
  std::unique_ptr<Policy> policy_;
};

}  // namespace

// The policy's bounds are applied last, each rounded to a power of two inside them.
StartScale ChooseStart(const Settings& settings, double largest, double u_max) {
  StartScale start;
  double power = 0;
  if (u_max >= kWide) {
    start.reason = "every gradient is stored in a format with fp32's range";
  } else if (!(largest > 0 && std::isfinite(largest))) {
    start.reason = "the first batch has no gradient that is a number and not zero";
  } else {
    const double headroom = settings.adaptive.headroom_bits;
    power = std::floor(std::log2(u_max) - headroom - std::log2(largest));
    start.reason = "the largest gradient of the logits in the first batch is " +
                   Formatted("%.3g", largest) + ", the narrowest format of gradients ends at " +
                   ShortestText(u_max) + ", and " + ShortestText(headroom) + " bits are left free";
  }
  // fp32's normal numbers.
  start.scale = std::exp2(std::clamp(power, -126.0, 127.0));
  const Ceiling ceiling = CeilingOf(settings);
  if (ceiling.scale && start.scale > *ceiling.scale) {
    start.reason += "; " + ShortestText(start.scale) + " is more than " + ceiling.key;
    start.scale = std::exp2(std::floor(std::log2(*ceiling.scale)));
  }
  if (settings.policy != "adaptive" && settings.min_scale && start.scale < *settings.min_scale) {
    start.reason += "; " + ShortestText(start.scale) + " is less than scaling.min_scale";
    start.scale = std::exp2(std::ceil(std::log2(*settings.min_scale)));
  }
  return start;
}

std::unique_ptr<Policy> MakeAutoStart(const Settings& settings, PolicyMaker make) {
  return std::make_unique<AutoStartPolicy>(settings, make);
}

}  // namespace ada::scaling
