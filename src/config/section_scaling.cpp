// The keys of `scaling`: the policy, its parameters, and what single layers do otherwise.
#include <algorithm>

#include "config/sections.h"

namespace ada::config {
namespace {

const Words<Policy> kPolicies = {
    {"none", Policy::kNone},
    {"fixed", Policy::kFixed},
    {"dynamic", Policy::kDynamic},
    {"adaptive", Policy::kAdaptive},
};
const Words<Method> kMethods = {{"approx_range", Method::kApproxRange}, {"fixed", Method::kFixed}};
const Words<Fan> kFans = {{"exact", Fan::kExact}, {"reference", Fan::kReference}};
const Names kLaterMethods = {"lognormal", "abs_range", "element_wise_range", "exact_range"};
const Names kLaterPresets = {"tensorflow", "keras",    "apex",
                             "deepspeed",  "megatron", "fairseq",
                             "nnabla",     "cerebras", "openseq2seq_backoff",
                             "mindspore",  "paddle",   "jmp",
                             "flax",       "mxnet",    "chainer",
                             "marian"};

// A scale is an fp32 value; powers of two beside its limits keep products finite.
Range ScaleRange() { return {0x1p-126, 0x1p127, true, true, "2^-126 to 2^127"}; }

constexpr char kTargetMeaning[] = "share of non-zero gradients that may become zero";
constexpr char kScaleBoundMeaning[] = "SB: largest alpha of a layer";
constexpr char kAccumBoundMeaning[] = "AB: largest scale that a gradient may gather on its way";
constexpr char kUMinMeaning[] = "magnitude below which a gradient counts as lost";
constexpr char kPowerMeaning[] = "round alpha down to a power of two";
constexpr char kIntervalMeaning[] = "backward passes between two looks at the statistics";
constexpr char kFanMeaning[] =
    "length of the sums in dx: exact divides by stride and groups, reference does not";

Section LayerScalingSection(LayerScalingConfig& layer) {
  Section section;
  section.path = "scaling.layers[]";
  section.where = &layer.where;
  section.keys = {
      Text("match", layer.match, "glob on layer names; the last match wins, key by key").Required(),
      Choice("method", layer.method, kMethods, "how alpha is found", kLaterMethods),
      Number("scale", layer.scale, ScaleRange(), "alpha of method fixed"),
      Number("underflow_target", layer.underflow_target, Inside(0, 1), kTargetMeaning),
      Number("scale_upper_bound", layer.scale_upper_bound, Above(0), kScaleBoundMeaning),
      Number("accum_upper_bound", layer.accum_upper_bound, Above(0), kAccumBoundMeaning),
      Switch("power_of_two", layer.power_of_two, kPowerMeaning),
      Integer("update_interval", layer.update_interval, FromTo(1, 1'000'000'000), kIntervalMeaning),
      Choice("fan", layer.fan, kFans, kFanMeaning),
      Number("u_min", layer.u_min, Above(0), kUMinMeaning),
  };
  for (Key& key : section.keys) {
    if (!key.required) key.default_text = "as in `scaling`";
  }
  return section;
}

bool UsesMethodFixed(const ScalingConfig& scaling) {
  const auto fixed = [](const LayerScalingConfig& layer) { return layer.method == Method::kFixed; };
  return scaling.method == Method::kFixed ||
         std::any_of(scaling.layers.begin(), scaling.layers.end(), fixed);
}

// `scale` and method fixed go together, in the section and in its layers.
void CheckFixedMethod(const ScalingConfig& scaling, const YamlNode& map, const Reading& reading) {
  const YamlNode* scale = map.Find("scale");
  const std::string path = Join(reading.path, "scale");
  if (!UsesMethodFixed(scaling)) {
    const std::string message = "only method fixed uses a scale, and no layer has it";
    if (scale) reading.problems.Add(*scale, path, message);
    const YamlNode* layers = map.Find("layers");
    for (const YamlNode& layer : layers ? layers->items : std::vector<YamlNode>()) {
      const YamlNode* own = layer.Find("scale");
      if (own) reading.problems.Add(*own, Join(reading.path, "layers[].scale"), message);
    }
    return;
  }
  if (scale) return;
  if (scaling.method == Method::kFixed) {
    reading.problems.Add(map.Find("method") ? *map.Find("method") : reading.key, path,
                         "missing; method fixed needs it: the constant alpha");
    return;
  }
  const bool layer_scale = std::any_of(scaling.layers.begin(), scaling.layers.end(),
                                       [](const auto& layer) { return layer.scale.has_value(); });
  const YamlNode* layers = map.Find("layers");
  if (!layer_scale && layers) {
    reading.problems.Add(*layers, Join(reading.path, "layers[].scale"),
                         "missing; method fixed needs it: the constant alpha");
  }
}

void CheckScaling(const ScalingConfig& scaling, const YamlNode& map, const Reading& reading) {
  if (scaling.policy == Policy::kAdaptive) CheckFixedMethod(scaling, map, reading);
  if (scaling.policy == Policy::kDynamic && scaling.min_scale && scaling.max_scale &&
      *scaling.min_scale > *scaling.max_scale) {
    reading.problems.Add(*map.Find("min_scale"), Join(reading.path, "min_scale"),
                         "must not be above max_scale");
  }
}

// Keys of the policies none, fixed and dynamic.
std::vector<Key> GlobalKeys(ScalingConfig& scaling) {
  return {
      Choice("policy", scaling.policy, kPolicies, "what decides the scales",
             {"layerwise_dynamic", "logmax", "histogram"}),
      WordText("preset", scaling.preset, {"pytorch"}, kLaterPresets,
               "the system whose state machine is followed")
          .For({"dynamic"}),
      Number("init_scale", scaling.init_scale, ScaleRange(),
             "scale of the logit gradient; dynamic: at the start")
          .For({"none", "dynamic", "adaptive"})
          .Default("1; dynamic: 65536"),
      Number("scale", scaling.scale, ScaleRange(),
             "fixed: the scale of all gradients; adaptive: alpha under method fixed")
          .For({"fixed", "adaptive"})
          .RequiredFor({"fixed"})
          .Default("required under policy or method fixed"),
      Number("growth_factor", scaling.growth_factor, Above(1), "factor of a growth")
          .For({"dynamic"}),
      Number("backoff_factor", scaling.backoff_factor, Inside(0, 1), "factor after an overflow")
          .For({"dynamic"}),
      Integer("growth_interval", scaling.growth_interval, FromTo(1, 1'000'000'000),
              "clean steps before a growth")
          .For({"dynamic"}),
      Number("min_scale", scaling.min_scale, ScaleRange(), "floor of the scale")
          .For({"dynamic"})
          .Default("none"),
      Number("max_scale", scaling.max_scale, ScaleRange(), "ceiling of the scale")
          .For({"dynamic"})
          .Default("none"),
  };
}

std::vector<Key> AdaptiveKeys(ScalingConfig& scaling) {
  std::vector<Key> keys = {
      Choice("method", scaling.method, kMethods, "how alpha is found", kLaterMethods),
      Number("underflow_target", scaling.underflow_target, Inside(0, 1), kTargetMeaning),
      Number("scale_upper_bound", scaling.scale_upper_bound, Above(0), kScaleBoundMeaning),
      Number("accum_upper_bound", scaling.accum_upper_bound, Above(0), kAccumBoundMeaning),
      Switch("power_of_two", scaling.power_of_two, kPowerMeaning),
      Integer("update_interval", scaling.update_interval, FromTo(1, 1'000'000'000),
              kIntervalMeaning),
      Choice("fan", scaling.fan, kFans, kFanMeaning),
      Number("u_min", scaling.u_min, Above(0), kUMinMeaning)
          .Default("the format's smallest subnormal"),
      Entries("layers", scaling.layers, &LayerScalingSection, "what single layers do otherwise"),
  };
  for (Key& key : keys) key.For({"adaptive"});
  return keys;
}

}  // namespace

Section ScalingSection(ScalingConfig& scaling) {
  Section section;
  section.path = "scaling";
  section.chooser = "policy";
  for (const auto& policy : kPolicies) section.choices.push_back(policy.first);
  section.default_choice = "none";
  section.where = &scaling.where;
  section.keys = GlobalKeys(scaling);
  for (Key& key : AdaptiveKeys(scaling)) section.keys.push_back(std::move(key));
  for (Key& key : section.keys) {
    if (key.name != "scale") continue;
    key.write = [&scaling, write = key.write]() -> std::optional<YamlNode> {
      const bool unused = scaling.policy == Policy::kAdaptive && !UsesMethodFixed(scaling);
      return unused ? std::nullopt : write();
    };
  }
  section.set_defaults = [&scaling](const std::string& policy) {
    scaling.init_scale = policy == "dynamic" ? 65536 : 1;
  };
  section.check = [&scaling](const YamlNode& map, const Reading& reading) {
    CheckScaling(scaling, map, reading);
  };
  return section;
}

}  // namespace ada::config
