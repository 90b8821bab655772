// `layerwise_dynamic` (fairscale's LayerwiseGradientScaler; preset dalle: Ramesh et al., 2021,
// appendix D.2): every layer, or group of layers, has its own S, with a small dynamic machine. An
// overflow anywhere skips the step, and S falls only in the layers where it happened. The original
// forgets to start the backward pass with the S of the layer nearest to the loss; here Scale()
// returns that S.
#include <algorithm>
#include <cmath>
#include <map>

#include "error.h"
#include "io/text.h"
#include "scaling/policies/common_keys.h"
#include "scaling/policies/policies.h"

namespace ada::scaling {
namespace {

// One machine: the scale as its layers' dx carry it.
struct Machine {
  std::string name;
  LayerwiseSettings settings;
  double scale;
  // Clean attempts since its last change or overflow; dalle: attempts until it may fall again.
  std::int64_t count = 0;

  // Moves the scale after an attempt and returns why, or "" if it does not change.
  std::string Update(bool overflow) {
    if (settings.dalle) return UpdateDalle(overflow);
    if (overflow) {
      count = 0;
      scale = Clamped(scale * settings.backoff_factor);
      return "overflow in " + name;
    }
    if (++count < settings.growth_interval) return "";
    count = 0;
    scale = Clamped(scale * settings.growth_factor);
    return std::to_string(settings.growth_interval) + " clean steps of " + name;
  }

 private:
  // The text leaves open what an overflow does that comes too early for a fall: the scale rests.
  std::string UpdateDalle(bool overflow) {
    const bool falls = overflow && count == 0;
    if (count > 0) --count;
    if (falls) {
      count = settings.growth_interval - 1;
      const bool root = settings.backoff_factor == 1 / std::sqrt(2.0);
      scale = root ? scale / std::sqrt(2.0) : scale * settings.backoff_factor;
    } else if (!overflow) {
      scale *= settings.growth_factor;
    }
    scale = Clamped(scale);
    return falls ? "overflow in " + name : overflow ? "" : "clean step of " + name;
  }
  double Clamped(double value) const {
    const double clamped = std::max(settings.min_scale, std::min(value, settings.max_scale));
    return settings.dalle ? clamped : static_cast<float>(clamped);
  }
};

// Each layer's dx carries the layer's S, whatever S its dy carried (LayerMethod::kState). The
// trainer gives LayerScale to the layers before each attempt and reports their overflows after it.
class LayerwisePolicy final : public Policy {
 public:
  LayerwisePolicy(float init_scale, LayerwiseLookup lookup, std::vector<ScaleGroup> groups)
      : init_scale_(init_scale), lookup_(std::move(lookup)), groups_(std::move(groups)) {}

  std::string_view name() const override { return "layerwise_dynamic"; }
  double Scale() const override {
    return layers_.empty() ? init_scale_ : machines_[layers_.back().machine].scale;
  }

  LayerRule RuleFor(const LayerInfo& info) override {
    ADA_CHECK(Find(info.name) == nullptr);
    layers_.push_back({info.name, MachineFor(info.name)});
    LayerRule rule;
    rule.method = LayerMethod::kState;
    rule.u_min = info.u_min;
    rule.u_max = info.u_max;
    rule.has_weight = info.has_weight;
    return rule;
  }

  // 1 for a layer without a rule.
  double LayerScale(const std::string& layer) const override {
    const Layer* found = Find(layer);
    return found == nullptr ? 1 : machines_[found->machine].scale;
  }

  StatsRequest RequiredStats() const override {
    StatsRequest request;
    request.layers = true;
    return request;
  }

  // A layer's own gradient that is not finite skips the step, even if a mask kept it out of every
  // weight gradient. An overflow that no layer is known to have caused counts against all of them:
  // otherwise no scale would ever fall.
  ScaleUpdate Update(const StepOutcome& attempt) override {
    const auto& flags = attempt.layer_overflow;
    const bool named =
        std::any_of(flags.begin(), flags.end(), [](const auto& flag) { return flag.second; });
    const bool skip = attempt.overflow || named;
    ScaleUpdate update;
    update.action = skip ? Action::kSkip : Action::kUpdate;
    update.before = Scale();
    std::vector<bool> bad(machines_.size(), skip && !named);
    for (const Layer& layer : layers_)
      if (const auto flag = flags.find(layer.name); flag != flags.end() && flag->second)
        bad[layer.machine] = true;
    std::string reason;
    for (std::size_t i = 0; i < machines_.size(); ++i) {
      const std::string why = machines_[i].Update(bad[i]);
      if (i == layers_.back().machine) reason = why;
    }
    update.after = Scale();
    if (update.after != update.before) update.reason = reason + StaysForGood(update.after);
    return update;
  }

  bool OwnsLayerScales() const override { return true; }

  StateMap SaveState() const override {
    StateMap state;
    for (const Machine& machine : machines_) {
      state["scale " + machine.name] = ToHex(machine.scale);
      state["growth_tracker " + machine.name] = std::to_string(machine.count);
    }
    return state;
  }

  // The state must have exactly the keys that saving would write for the layers of this run.
  void LoadState(const StateMap& state) override {
    std::vector<std::string> names;
    for (const auto& [key, value] : SaveState()) names.push_back(key);
    ExpectKeys(state, name(), std::vector<std::string_view>(names.begin(), names.end()));
    std::vector<Machine> read = machines_;
    for (Machine& machine : read) Read(state, machine);
    machines_ = std::move(read);
  }

 private:
  struct Layer {
    std::string name;
    std::size_t machine;
  };

  // The machine of the first group that the name fits, which is made for its first layer; of a
  // layer in no group its own.
  std::size_t MachineFor(const std::string& layer) {
    std::string name = layer;
    for (const ScaleGroup& group : groups_) {
      if (!GlobMatch(group.match, layer)) continue;
      name = group.match;
      for (std::size_t i = 0; i < machines_.size(); ++i)
        if (machines_[i].name == name) return i;
      break;
    }
    const LayerwiseSettings settings = lookup_(layer);
    CheckBounds(settings.min_scale, settings.max_scale);
    ADA_CHECK(settings.growth_interval >= 1);
    const float start = CheckedScale("scaling.init_scale", settings.init_scale);
    machines_.push_back({name, settings, settings.dalle ? settings.init_scale : start});
    return machines_.size() - 1;
  }

  const Layer* Find(const std::string& name) const {
    for (const Layer& layer : layers_)
      if (layer.name == name) return &layer;
    return nullptr;
  }

  static void Read(const StateMap& state, Machine& machine) {
    const double scale = ReadHex(state, "scale " + machine.name);
    const std::int64_t count = ReadInteger(state, "growth_tracker " + machine.name);
    const bool typed = machine.settings.dalle || static_cast<float>(scale) == scale;
    const bool fits = scale >= 0 && std::isfinite(scale) && typed;
    if (!fits || count < 0 || count >= machine.settings.growth_interval) {
      throw DataError("scaling state of 'layerwise_dynamic', layer " + machine.name +
                      ": scale and growth_tracker do not fit; expected an fp32 scale and a count "
                      "below growth_interval (" +
                      std::to_string(machine.settings.growth_interval) + ")");
    }
    machine.scale = scale;
    machine.count = count;
  }

  float init_scale_;
  LayerwiseLookup lookup_;
  std::vector<ScaleGroup> groups_;
  std::vector<Layer> layers_;  // in forward order
  std::vector<Machine> machines_;
};

LayerwiseSettings DefaultsOf(const Settings& settings) {
  LayerwiseSettings defaults;
  if (settings.layer_preset != kDallePreset) return defaults;
  defaults.dalle = true;
  defaults.init_scale = 0x1p13, defaults.growth_factor = std::pow(2.0, 1.0 / 1000);
  defaults.backoff_factor = 1 / std::sqrt(2.0), defaults.growth_interval = 125;
  defaults.min_scale = 0x1p7, defaults.max_scale = 0x1p24;
  return defaults;
}

std::string DescribedWith(const std::string& what, const LayerwiseSettings& s) {
  return what + "; init_scale " + ShortestText(s.init_scale) + ", growth_factor " +
         ShortestText(s.growth_factor) + ", backoff_factor " + ShortestText(s.backoff_factor) +
         ", growth_interval " + std::to_string(s.growth_interval) + ", min_scale " +
         ShortestText(s.min_scale) + ", max_scale " + ShortestText(s.max_scale);
}

}  // namespace

std::unique_ptr<Policy> MakeLayerwiseDynamic(double init_scale, LayerwiseLookup lookup,
                                             std::vector<ScaleGroup> groups) {
  return std::make_unique<LayerwisePolicy>(CheckedScale("scaling.init_scale", init_scale),
                                           std::move(lookup), std::move(groups));
}

LayerwiseSettings LayerwiseDefaults(const Settings& settings) { return DefaultsOf(settings); }

const PolicyKind kLayerwiseDynamic = {
    "layerwise_dynamic", [](Settings& settings) { FillUnset(settings, DefaultsOf(settings)); },
    [](const Settings& settings) {
      return MakeLayerwiseDynamic(
          With(settings, DefaultsOf(settings)).init_scale,
          [settings](const std::string& layer) { return LayerwiseOf(settings, layer); },
          settings.groups);
    },
    [] {
      Settings dalle;
      dalle.layer_preset = kDallePreset;
      return std::vector<std::string>{
          DescribedWith(
              "layerwise_dynamic: every layer has an S of its own, halved where the layer "
              "overflows, doubled after growth_interval clean steps; facebookresearch/"
              "fairscale fairscale/optim/layerwise_gradient_scaler.py",
              DefaultsOf({})),
          DescribedWith(
              "layerwise_dynamic, preset dalle: an S for each of `groups`, which grows at each "
              "clean step and falls at most once in growth_interval; arXiv 2102.12092, D.2",
              DefaultsOf(dalle))};
    }};

}  // namespace ada::scaling
