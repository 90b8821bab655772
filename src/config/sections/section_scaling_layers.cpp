// The keys of `scaling` that decide layer by layer: those of policy adaptive, and `scaling.layers`.
// The rules that these keys set are in scaling/rules/rules.h (LayerRule); SB and AB are names of
// the paper, Zhao et al., IJCAI-20.
#include <limits>

#include "config/sections/sections.h"

namespace ada::config {
namespace {

using scaling::Fan;
using scaling::LayerMethod;

EnumNames<LayerMethod> Methods() {
  EnumNames<LayerMethod> words;
  for (const LayerMethod method : scaling::kAdaptiveMethods)
    words.emplace_back(scaling::MethodName(method), method);
  return words;
}
// Gradients are fp32 before they are rounded.
Range MagnitudeRange() {
  return {0, std::numeric_limits<float>::max(), false, true, "above 0, at most 3.4e38"};
}
const EnumNames<Fan> kFans = {{"exact", Fan::kExact}, {"reference", Fan::kReference}};

// The keys that the section and its layers have in common. T: scaling::AdaptiveSettings or
// scaling::LayerSettings.
template <class T>
std::vector<Key> MethodKeys(T& scaling) {
  return {
      Choice("method", scaling.method, Methods(), "how alpha is found"),
      Number("underflow_target", scaling.underflow_target, Inside(0, 1),
             "share of non-zero gradients that may become zero"),
      Number("scale_upper_bound", scaling.scale_upper_bound, Above(0),
             "SB: largest alpha of a layer"),
      Number("accum_upper_bound", scaling.accum_upper_bound, Above(0),
             "AB: largest scale that a gradient may gather on its way"),
      Switch("power_of_two", scaling.power_of_two, "round alpha down to a power of two"),
      Integer("update_interval", scaling.update_interval, FromTo(1, 1'000'000'000),
              "backward passes between two looks at the statistics"),
      Choice("fan", scaling.fan, kFans,
             "length of the sums in dx: exact divides by stride and groups, reference does not"),
      Number("u_min", scaling.u_min, MagnitudeRange(),
             "magnitude below which a gradient counts as lost"),
      Number("headroom_bits", scaling.headroom_bits, FromTo(0, 100),
             "exact_range: powers of two kept free between the largest gradient and the format's "
             "largest value"),
  };
}

// What an entry of `layers` may change under policy layerwise_dynamic.
std::vector<Key> LayerwiseKeys(scaling::LayerSettings& layer) {
  std::vector<Key> keys = {
      Number("init_scale", layer.init_scale, ScaleRange(), "the start of the layer's own scale"),
      Number("growth_factor", layer.growth_factor, AtLeast(1), "factor of a growth"),
      Number("backoff_factor", layer.backoff_factor, ShareRange(), "factor after an overflow"),
      Integer("growth_interval", layer.growth_interval, FromTo(1, 1'000'000'000),
              "clean steps before a growth"),
      Number("min_scale", layer.min_scale, ScaleRange(), "floor of the layer's scale"),
      Number("max_scale", layer.max_scale, ScaleRange(), "ceiling of the layer's scale"),
  };
  for (Key& key : keys) key.For({"layerwise_dynamic"});
  return keys;
}

}  // namespace

Section LayerScalingSection(scaling::LayerSettings& layer, const std::string& policy) {
  Section section;
  section.path = "scaling.layers[]";
  section.discriminator = "policy";
  // The entries follow the policy of the section around them. The table for schema and help is made
  // for no policy and has the keys of both.
  section.chosen = policy == "adaptive" || policy == "layerwise_dynamic" ? policy : "";
  section.where = &layer.where;
  section.keys = {
      Text("match", layer.match, "glob on layer names; the last match wins, key by key").Required(),
  };
  // `scale` follows `method`, to which it belongs.
  std::vector<Key> adaptive = MethodKeys(layer);
  adaptive.insert(adaptive.begin() + 1,
                  Number("scale", layer.scale, ScaleRange(), "alpha of method fixed"));
  adaptive.insert(adaptive.begin() + 2,
                  Number("total_scale", layer.total_scale, ScaleRange(),
                         "S of the layer's dx, whatever S comes with its dy: alpha is "
                         "total_scale / S; instead of a method"));
  for (Key& key : adaptive) section.keys.push_back(std::move(key.For({"adaptive"})));
  for (Key& key : LayerwiseKeys(layer)) section.keys.push_back(std::move(key));
  for (Key& key : section.keys) {
    if (!key.required) key.default_text = key.name == "total_scale" ? "none" : "as in `scaling`";
  }
  section.check = [&layer](const YamlNode& map, const ReadContext& context) {
    for (const char* other : {"method", "scale"})
      if (layer.total_scale && map.Find(other))
        context.problems.Add(*map.Find(other), Join(context.path, other),
                             "total_scale is the layer's S, and no method chooses it; leave out "
                             "one of the two");
    if (scaling::BoundsCross(layer.min_scale, layer.max_scale)) {
      context.problems.Add(*map.Find("min_scale"), Join(context.path, "min_scale"),
                           "must not be above max_scale");
    }
  };
  return section;
}

std::vector<Key> AdaptiveKeys(scaling::Settings& scaling) {
  std::vector<Key> keys = MethodKeys(scaling.adaptive);
  Key& batch_norm = keys.emplace_back(
      Switch("batch_norm", scaling.adaptive.batch_norm,
             "batch norms choose an alpha too, as convolutions do; false: they hand S on"));
  batch_norm.unused = [&scaling] { return !scaling.adaptive.batch_norm; };
  Key& attention = keys.emplace_back(
      Switch("attention", scaling.adaptive.attention,
             "the gradients within attention (LAYER.dv, .ds, .dq, .dk) choose an alpha each; "
             "false: they hand S on"));
  attention.unused = [&scaling] { return scaling.adaptive.attention; };
  for (Key& key : keys) {
    if (key.name == "fan") key.Default("exact; under `reference`: reference");
    if (key.name == "u_min") key.Default("the format's smallest subnormal");
    key.For({"adaptive"});
  }
  return keys;
}

}  // namespace ada::config
