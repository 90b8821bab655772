// The text of `ada-train policies`: what each policy, preset and method does, after whom, and with
// which constants.
#include <algorithm>

#include "core/text.h"
#include "scaling/policies/presets.h"

namespace ada::scaling {
namespace {

std::string Bound(double value) { return value > 0 ? ShortestText(value) : "none"; }
std::string Word(bool value) { return value ? "true" : "false"; }

std::string Constants(const DynamicPreset& preset) {
  const DynamicParameters p = Resolved(preset.parameters);
  auto has = [&](std::string_view key) {
    return std::find(preset.more_keys.begin(), preset.more_keys.end(), key) !=
           preset.more_keys.end();
  };
  std::string text = "init_scale " + ShortestText(p.init_scale) + ", growth_factor " +
                     ShortestText(p.growth_factor) + ", backoff_factor " +
                     ShortestText(p.backoff_factor) + ", growth_interval " +
                     std::to_string(p.growth_interval) + ", min_scale " + Bound(p.min_scale) +
                     ", max_scale " + Bound(p.max_scale);
  if (has("hysteresis")) text += ", hysteresis " + std::to_string(p.hysteresis);
  if (has("consecutive_hysteresis"))
    text += ", consecutive_hysteresis " + Word(p.consecutive_hysteresis);
  if (has("tolerance")) text += ", tolerance " + ShortestText(p.tolerance);
  text += ", error_at_min_scale " + Word(p.error_at_min_scale);
  if (preset.max_retries > 0) text += ", on_overflow retry";
  return text;
}

std::string AdaptiveConstants() {
  const AdaptiveSettings s;
  return "underflow_target " + ShortestText(s.underflow_target) + ", scale_upper_bound " +
         ShortestText(s.scale_upper_bound) + ", accum_upper_bound " +
         ShortestText(s.accum_upper_bound) + ", power_of_two " + Word(s.power_of_two) +
         ", update_interval " + std::to_string(s.update_interval) + ", fan " +
         (s.fan_exact ? "exact" : "reference");
}

struct MethodText {
  const char *name, *meaning, *source;
  std::string constants;
};

std::vector<MethodText> Methods() {
  const AdaptiveSettings s;
  const std::string bounds = AdaptiveConstants();
  const std::string unbounded = std::string("power_of_two true, update_interval 1, fan ") +
                                (s.fan_exact ? "exact" : "reference");
  const char* reference = "kumasento/gradient-scaling ada_loss/core.py";
  const char* paper = "Zhao et al., IJCAI 2020, kumasento/gradient-scaling ada_loss/core.py";
  return {
      {"approx_range",
       "each layer takes the alpha that keeps its underflow at the target under a Gaussian model",
       paper, bounds},
      {"lognormal",
       "a cast takes it under a log-normal model of the gradient; a layer with a weight as "
       "approx_range",
       reference, bounds},
      {"abs_range",
       "from the smallest and largest magnitudes of gradient and weight; no upper bounds",
       reference, unbounded},
      {"element_wise_range",
       "from the smallest and largest products of gradient and weight; no upper bounds", reference,
       unbounded},
      {"exact_range",
       "from the exponents of the gradients that the layer really produced, without a model",
       "ada-train's own", "headroom_bits " + ShortestText(s.headroom_bits) + ", " + bounds},
      {"fixed", "each layer multiplies by its own constant", reference,
       "scale 1, power_of_two true"},
  };
}

std::string LogMaxConstants() {
  const LogMaxParameters p;
  return "beta1 " + ShortestText(p.beta1) + ", beta2 " + ShortestText(p.beta2) +
         ", overflow_std_dev " + ShortestText(p.overflow_std_dev) + ", log_max " +
         ShortestText(p.log_max) + ", min_scale " + ShortestText(p.min_scale) + ", max_scale " +
         ShortestText(p.max_scale) + ", reference false";
}

std::string HistogramConstants() {
  const HistogramParameters p;
  return "init_scale " + ShortestText(p.init_scale) + ", update_period " +
         std::to_string(p.update_period) + ", bin_edge " + ShortestText(p.bin_edge) +
         ", threshold " + ShortestText(p.threshold) + ", min_scale " + ShortestText(p.min_scale) +
         ", max_scale " + ShortestText(p.max_scale);
}

std::string LayerwiseConstants() {
  const LayerwiseSettings s;
  return "init_scale " + ShortestText(s.init_scale) + ", growth_factor " +
         ShortestText(s.growth_factor) + ", backoff_factor " + ShortestText(s.backoff_factor) +
         ", growth_interval " + std::to_string(s.growth_interval) + ", min_scale " +
         ShortestText(s.min_scale) + ", max_scale " + ShortestText(s.max_scale);
}

}  // namespace

std::vector<std::string> ListPolicies() {
  std::vector<std::string> lines = {
      "none: every alpha is 1, all layers carry S = init_scale; plain training; init_scale 1",
      "fixed: every alpha is 1, all layers carry S = scale; static loss scaling (Micikevicius et "
      "al., ICLR 2018); scale 1",
  };
  for (const DynamicPreset& preset : DynamicPresets()) {
    lines.push_back("dynamic, preset " + std::string(preset.name) + ": one global S; " +
                    std::string(preset.meaning) + "; " + std::string(preset.source) + "; " +
                    Constants(preset));
  }
  for (const MethodText& m : Methods()) {
    lines.push_back("adaptive, method " + std::string(m.name) + ": " + m.meaning + "; " + m.source +
                    "; init_scale 1, " + m.constants);
  }
  lines.push_back(
      "layerwise_dynamic: every layer has an S of its own, halved where the layer overflows, "
      "doubled "
      "after growth_interval clean steps; facebookresearch/fairscale "
      "fairscale/optim/layerwise_gradient_scaler.py; " +
      LayerwiseConstants());
  lines.push_back(
      "logmax: one global S from running averages of the largest gradient's logarithm; "
      "NVIDIA/OpenSeq2Seq open_seq2seq/optimizers/automatic_loss_scaler.py; " +
      LogMaxConstants());
  lines.push_back(
      "histogram: one global S, halved or doubled each period by the share of gradients above "
      "bin_edge of the format's largest value; Graphcore automatic loss scaling; " +
      HistogramConstants());
  return lines;
}

}  // namespace ada::scaling
