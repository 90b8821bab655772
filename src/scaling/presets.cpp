// The table of presets and the text of `ada-train policies`.
#include "scaling/presets.h"

#include "core/error.h"
#include "core/text.h"

namespace ada::scaling {
namespace {

std::string Constants(const DynamicParameters& p) {
  return "init_scale " + ShortestText(p.init_scale) + ", growth_factor " +
         ShortestText(p.growth_factor) + ", backoff_factor " + ShortestText(p.backoff_factor) +
         ", growth_interval " + std::to_string(p.growth_interval) + ", min_scale " +
         (p.min_scale > 0 ? ShortestText(p.min_scale) : "none") + ", max_scale " +
         (p.max_scale > 0 ? ShortestText(p.max_scale) : "none");
}

std::string AdaptiveConstants() {
  const AdaptiveSettings s;
  return "underflow_target " + ShortestText(s.underflow_target) + ", scale_upper_bound " +
         ShortestText(s.scale_upper_bound) + ", accum_upper_bound " +
         ShortestText(s.accum_upper_bound) + ", power_of_two " +
         (s.power_of_two ? "true" : "false") + ", update_interval " +
         std::to_string(s.update_interval) + ", fan " + (s.fan_exact ? "exact" : "reference");
}

}  // namespace

const std::vector<DynamicPreset>& DynamicPresets() {
  static const std::vector<DynamicPreset> presets = {
      {"pytorch",
       {65536, 2, 0.5, 2000, 0, 0},
       "overflow: skip and halve; doubles after growth_interval clean steps in a row",
       "pytorch/pytorch torch/amp/grad_scaler.py"},
  };
  return presets;
}

const DynamicPreset& FindDynamicPreset(std::string_view name) {
  std::string known;
  for (const DynamicPreset& preset : DynamicPresets()) {
    if (preset.name == name) return preset;
    known += (known.empty() ? "" : ", ") + std::string(preset.name);
  }
  throw ConfigError("scaling.preset: unknown preset '" + std::string(name) + "', expected one of " +
                    known);
}

std::vector<std::string> ListPolicies() {
  std::vector<std::string> lines = {
      "none: every alpha is 1, all layers carry S = init_scale; plain training; init_scale 1",
      "fixed: every alpha is 1, all layers carry S = scale; static loss scaling (Micikevicius et "
      "al., ICLR 2018); scale 1",
  };
  for (const DynamicPreset& preset : DynamicPresets()) {
    lines.push_back("dynamic, preset " + std::string(preset.name) + ": one global S; " +
                    std::string(preset.meaning) + "; " + std::string(preset.source) + "; " +
                    Constants(preset.parameters));
  }
  lines.push_back(
      "adaptive, method approx_range: each layer takes the alpha that keeps its underflow at the "
      "target under a Gaussian model; Zhao et al., IJCAI 2020, kumasento/gradient-scaling "
      "ada_loss/core.py; init_scale 1, " +
      AdaptiveConstants());
  lines.push_back(
      "adaptive, method fixed: each layer multiplies by its own constant; kumasento/"
      "gradient-scaling ada_loss/core.py; scale 1, power_of_two true");
  return lines;
}

}  // namespace ada::scaling
