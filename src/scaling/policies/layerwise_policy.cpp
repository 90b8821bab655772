// `layerwise_dynamic` (fairscale's LayerwiseGradientScaler): every layer has its own S, with a
// small dynamic machine. An overflow anywhere skips the step, and S falls only in the layers where
// it happened. The original forgets to start the backward pass with the S of the layer nearest to
// the loss; here Scale() returns that S.
#include <algorithm>
#include <cmath>
#include <map>

#include "error.h"
#include "io/text.h"
#include "scaling/policies/common_keys.h"

namespace ada::scaling {
namespace {

// One layer's machine: the scale as its dx carries it.
struct Layer {
  std::string name;
  LayerwiseSettings settings;
  double scale;
  std::int64_t clean = 0;  // clean attempts since its last change or overflow

  // Moves the scale after an attempt and returns why, or "" if it does not change.
  std::string Update(bool overflow) {
    if (overflow) {
      clean = 0;
      scale = Clamped(scale * settings.backoff_factor);
      return "overflow in " + name;
    }
    if (++clean < settings.growth_interval) return "";
    clean = 0;
    scale = Clamped(scale * settings.growth_factor);
    return std::to_string(settings.growth_interval) + " clean steps of " + name;
  }

 private:
  double Clamped(double value) const {
    return static_cast<float>(std::max(settings.min_scale, std::min(value, settings.max_scale)));
  }
};

// Each layer's dx carries the layer's S, whatever S its dy carried (LayerMethod::kState). The
// trainer gives LayerScale to the layers before each attempt and reports their overflows after it.
class LayerwisePolicy final : public Policy {
 public:
  LayerwisePolicy(float init_scale, LayerwiseLookup lookup)
      : init_scale_(init_scale), lookup_(std::move(lookup)) {}

  std::string_view name() const override { return "layerwise_dynamic"; }
  double Scale() const override { return layers_.empty() ? init_scale_ : layers_.back().scale; }

  LayerRule RuleFor(const LayerInfo& info) override {
    ADA_CHECK(Find(info.name) == nullptr);
    const LayerwiseSettings settings = lookup_(info.name);
    CheckBounds(settings.min_scale, settings.max_scale);
    ADA_CHECK(settings.growth_interval >= 1);
    layers_.push_back(
        {info.name, settings, CheckedScale("scaling.init_scale", settings.init_scale)});
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
    return found == nullptr ? 1 : found->scale;
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
    std::string reason;
    for (Layer& layer : layers_) {
      const auto flag = flags.find(layer.name);
      const bool bad = named ? flag != flags.end() && flag->second : skip;
      reason = layer.Update(bad);
    }
    update.after = Scale();
    if (update.after != update.before) update.reason = reason + StaysForGood(update.after);
    return update;
  }

  bool OwnsLayerScales() const override { return true; }

  StateMap SaveState() const override {
    StateMap state;
    for (const Layer& layer : layers_) {
      state["scale " + layer.name] = ToHex(layer.scale);
      state["growth_tracker " + layer.name] = std::to_string(layer.clean);
    }
    return state;
  }

  // The state must have exactly the keys that saving would write for the layers of this run.
  void LoadState(const StateMap& state) override {
    std::vector<std::string> names;
    for (const auto& [key, value] : SaveState()) names.push_back(key);
    ExpectKeys(state, name(), std::vector<std::string_view>(names.begin(), names.end()));
    std::vector<Layer> read = layers_;
    for (Layer& layer : read) Read(state, layer);
    layers_ = std::move(read);
  }

 private:
  const Layer* Find(const std::string& name) const {
    for (const Layer& layer : layers_)
      if (layer.name == name) return &layer;
    return nullptr;
  }

  static void Read(const StateMap& state, Layer& layer) {
    const double scale = ReadHex(state, "scale " + layer.name);
    const std::int64_t clean = ReadInteger(state, "growth_tracker " + layer.name);
    const bool fp32 = scale >= 0 && std::isfinite(scale) && static_cast<float>(scale) == scale;
    if (!fp32 || clean < 0 || clean >= layer.settings.growth_interval) {
      throw DataError("scaling state of 'layerwise_dynamic', layer " + layer.name +
                      ": scale and growth_tracker do not fit; expected an fp32 scale and a count "
                      "below growth_interval (" +
                      std::to_string(layer.settings.growth_interval) + ")");
    }
    layer.scale = scale;
    layer.clean = clean;
  }

  float init_scale_;
  LayerwiseLookup lookup_;
  std::vector<Layer> layers_;  // in forward order
};

}  // namespace

std::unique_ptr<Policy> MakeLayerwiseDynamic(double init_scale, LayerwiseLookup lookup) {
  return std::make_unique<LayerwisePolicy>(CheckedScale("scaling.init_scale", init_scale),
                                           std::move(lookup));
}

const PolicyKind kLayerwiseDynamic = {
    "layerwise_dynamic", [](Settings& settings) { FillUnset(settings, LayerwiseSettings()); },
    [](const Settings& settings) {
      return MakeLayerwiseDynamic(
          With(settings, LayerwiseSettings()).init_scale,
          [settings](const std::string& layer) { return LayerwiseOf(settings, layer); });
    },
    [] {
      const LayerwiseSettings s;
      return std::vector<std::string>{
          "layerwise_dynamic: every layer has an S of its own, halved where the layer overflows, "
          "doubled after growth_interval clean steps; facebookresearch/fairscale "
          "fairscale/optim/layerwise_gradient_scaler.py; init_scale " +
          ShortestText(s.init_scale) + ", growth_factor " + ShortestText(s.growth_factor) +
          ", backoff_factor " + ShortestText(s.backoff_factor) + ", growth_interval " +
          std::to_string(s.growth_interval) + ", min_scale " + ShortestText(s.min_scale) +
          ", max_scale " + ShortestText(s.max_scale)};
    }};

}  // namespace ada::scaling
