// The keys of `scaling`: the policy, its parameters, and what single layers do otherwise. The
// fields are those of scaling::Settings. Most defaults are the policy's or preset's own and stay
// unset here (scaling::FillDefaults); For and ForSecond say which keys a policy has. The rules of
// single layers are in scaling/rules/rules.h (LayerRule); SB and AB are names of the paper, Zhao et
// al., IJCAI-20.
#include <limits>

#include "config/sections/sections.h"
#include "io/text.h"
#include "scaling/policies/presets.h"

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

// A floor or ceiling of a scale.
// Wider than ScaleRange, for under policy dynamic 0 means no bound; CheckBounds narrows it
// elsewhere.
Range BoundRange() { return {0, std::numeric_limits<float>::max(), true, true, "0 to 3.4e38"}; }

// Whether the start, factors and bounds that nearly all presets have are keys here.
bool HasCommonKeys(const scaling::Settings& scaling) {
  return scaling.policy != "dynamic" || scaling::HasCommonKeys(scaling.preset);
}

// A number, or `auto`.
// `auto` leaves init_scale at its default, which is the scale until the first batch has told one.
Key StartKey(scaling::Settings& scaling) {
  Range range = ScaleRange();
  range.text += ", or auto";
  Key key = Number("init_scale", scaling.init_scale, range,
                   "scale of the logit gradient; where it moves: its start (layerwise_dynamic: "
                   "each layer's); auto: chosen from the first batch");
  key.type = "number or auto";
  key.schemas.push_back(WordSchema({"auto"}));
  key.read = [&scaling, number = key.read](const YamlNode& node, const ReadContext& context) {
    scaling.auto_init_scale = IsWord(node, "auto");
    if (!scaling.auto_init_scale) number(node, context);
  };
  key.WrittenIf([&scaling] { return HasCommonKeys(scaling); });
  key.write = [&scaling, number = key.write] {
    return scaling.auto_init_scale ? std::optional(Scalar("auto")) : number();
  };
  return key;
}

// A preset of the policy. One of the other policy's, which --set leaves behind, is dropped.
Key PresetKey(scaling::Settings& scaling) {
  const Names layerwise = {"fairscale", scaling::kDallePreset};
  Key key = ByChoice(WordText("preset", scaling.preset, scaling::PresetNames(),
                              "the system whose state machine is followed")
                         .For({"dynamic"}),
                     WordText("preset", scaling.layer_preset, layerwise,
                              "layerwise_dynamic: how a layer's scale moves")
                         .For({"layerwise_dynamic"}),
                     scaling.policy)
                .Default("pytorch; layerwise_dynamic: fairscale");
  key.idle = [layerwise](const YamlNode& map) -> std::string {
    const YamlNode *policy = map.Find("policy"), *preset = map.Find("preset");
    if (policy == nullptr || preset == nullptr) return "";
    const bool of_layers = Contains(layerwise, preset->text);
    const bool fits = policy->text == "layerwise_dynamic" ? of_layers : !of_layers;
    return fits ? "" : "policy " + policy->text + " does not know it";
  };
  return key;
}

// Keys of the policy as a whole, the two discriminators among them.
std::vector<Key> GlobalKeys(scaling::Settings& scaling) {
  return {
      WordText("policy", scaling.policy, scaling::PolicyNames(), "what decides the scales"),
      PresetKey(scaling),
      StartKey(scaling)
          .For({"none", "dynamic", "adaptive", "layerwise_dynamic", "histogram"})
          .Default("1; dynamic, layerwise_dynamic: the preset's; histogram: 65536"),
      Number("scale", scaling.scale, ScaleRange(),
             "fixed: the scale of all gradients; adaptive: alpha under method fixed")
          .For({"fixed", "adaptive"})
          .RequiredFor({"fixed"})
          .Default("required under policy or method fixed"),
  };
}

// Keys of the policies whose scales move step by step.
std::vector<Key> MovingKeys(scaling::Settings& scaling) {
  const Names stepwise = {"dynamic", "layerwise_dynamic"};
  const Names bounded = {"dynamic", "layerwise_dynamic", "logmax", "histogram"};
  std::vector<Key> keys = {
      Number("growth_factor", scaling.growth_factor, AtLeast(1), "factor of a growth")
          .For(stepwise)
          .Default("the preset's; layerwise_dynamic: 2"),
      Number("backoff_factor", scaling.backoff_factor, ShareRange(), "factor after an overflow")
          .For(stepwise)
          .Default("the preset's; layerwise_dynamic: 0.5"),
      Integer("growth_interval", scaling.growth_interval, FromTo(1, 1'000'000'000),
              "clean steps before a growth")
          .For(stepwise)
          .Default("the preset's; layerwise_dynamic: 10000"),
      Number("min_scale", scaling.min_scale, BoundRange(), "floor of the scale; dynamic: 0: none")
          .For(bounded)
          .Default("the preset's; layerwise_dynamic: 2^-126; logmax, histogram: 1"),
      Number("max_scale", scaling.max_scale, BoundRange(), "ceiling of the scale; dynamic: 0: none")
          .For(bounded)
          .Default("the preset's; layerwise_dynamic, histogram: 2^126; logmax: 16384"),
  };
  for (Key& key : keys) key.WrittenIf([&scaling] { return HasCommonKeys(scaling); });
  return keys;
}

// What is done with gradients that are not finite where the scale does not move.
Section OnOverflowSection(scaling::OverflowRepair& repair) {
  using Action = scaling::OverflowRepair::Action;
  const double most = std::numeric_limits<float>::max();
  Section section;
  section.path = "scaling.on_overflow";
  section.short_key = "action";
  section.keys = {
      Choice("action", repair.action,
             EnumNames<Action>{{"skip", Action::kSkip}, {"sanitize", Action::kSanitize}},
             "skip: the step changes nothing; sanitize: what is not finite is replaced, and the "
             "update takes place")
          .Required(),
      Number("nan", repair.nan, {-most, most, true, true, "-3.4e38 to 3.4e38"}, "what NaN becomes"),
      Number("inf", repair.inf, {0, most, false, true, "above 0, at most 3.4e38"},
             "what inf becomes, and -inf with its sign, as values that carry S"),
  };
  section.keys.front().default_text = "skip";
  return section;
}
Key OnOverflowKey(scaling::Settings& scaling) {
  return Nested("on_overflow", OnOverflowSection(scaling.on_overflow),
                "gradients that are not finite (EDM, StyleGAN); `on_overflow: sanitize` is short")
      .For({"none", "fixed"})
      .WrittenIf([&scaling] {
        return scaling.on_overflow.action != scaling::OverflowRepair::Action::kSkip;
      });
}

Section ScaleGroupSection(scaling::ScaleGroup& group) {
  Section section;
  section.path = "scaling.groups[]";
  section.keys = {
      Text("match", group.match, "glob on layer names; the first that fits counts").Required()};
  return section;
}

// Keys that only some presets have, according to the table of their state machines.
std::vector<Key> PresetKeys(scaling::Settings& scaling) {
  std::vector<Key> keys = {
      Integer("hysteresis", scaling.hysteresis, FromTo(1, 1'000'000'000),
              "overflows before the scale falls (paddle: in a row)")
          .ForSecond(scaling::PresetsWith("hysteresis")),
      Switch("consecutive_hysteresis", scaling.consecutive_hysteresis,
             "each clean step starts the count of overflows anew")
          .ForSecond(scaling::PresetsWith("consecutive_hysteresis")),
      Switch("error_at_min_scale", scaling.error_at_min_scale,
             "an overflow while the scale is at its floor ends the run"),
      Number("tolerance", scaling.tolerance, FromTo(0, 1),
             "share of overflows since the last change that the scale bears without falling")
          .ForSecond(scaling::PresetsWith("tolerance")),
      Number("init_lg_scale", scaling.init_lg_scale, FromTo(-126, 127), "log2 of the first scale")
          .ForSecond(scaling::PresetsWith("init_lg_scale")),
      Number("lg_growth", scaling.lg_growth, FromTo(0, 100), "added to it at each clean step")
          .ForSecond(scaling::PresetsWith("lg_growth")),
      Integer("min_window", scaling.min_window, FromTo(1, 1'000'000),
              "the smallest window of the list")
          .ForSecond(scaling::PresetsWith("min_window")),
      Integer("max_window", scaling.max_window, FromTo(2, 1'000'000),
              "the largest window of the list")
          .ForSecond(scaling::PresetsWith("max_window")),
  };
  for (Key& key : keys) {
    key.For({"dynamic"}).Default("the preset's");
    if (key.name == "error_at_min_scale")
      key.WrittenIf([&scaling] { return HasCommonKeys(scaling); });
  }
  return keys;
}

// Policy histogram moves its scale by the share of gradients near the format's largest value.
std::vector<Key> HistogramKeys(scaling::Settings& scaling) {
  std::vector<Key> keys = {
      Integer("update_period", scaling.histogram.update_period, FromTo(1, 1'000'000'000),
              "attempts between two moves of the scale; the gradients of the last one are counted"),
      Number("bin_edge", scaling.histogram.bin_edge, ShareRange(),
             "share of the format's largest value above which a gradient counts as large"),
      Number("threshold", scaling.histogram.threshold, FromBelow(0, 1),
             "share of large gradients above which the scale is halved, else doubled"),
  };
  for (Key& key : keys) key.For({"histogram"});
  return keys;
}

// A decay that is below 1 in fp32 too, in which the averages are formed.
Range DecayRange() { return {0, 1 - 0x1p-24, true, true, "0 to 1 - 2^-24"}; }

// Policy logmax follows the mean and deviation of log2 max|gradient| of the past steps.
std::vector<Key> LogMaxKeys(scaling::Settings& scaling) {
  std::vector<Key> keys = {
      Number("beta1", scaling.logmax.beta1, DecayRange(),
             "decay of the mean of log2 max|gradient|"),
      Number("beta2", scaling.logmax.beta2, DecayRange(), "decay of the averages of its variance"),
      Number("overflow_std_dev", scaling.logmax.overflow_std_dev, FromTo(0, 1000),
             "standard deviations that are kept free above the mean"),
      Number("log_max", scaling.logmax.log_max, FromTo(-126, 128),
             "log2 of the value that scaled gradients shall not reach"),
  };
  for (Key& key : keys) key.For({"logmax"});
  return keys;
}

// The table of an entry is made when the entry is read, since it depends on the policy.
Key LayersKeyOf(scaling::Settings& scaling) {
  const auto section = [&scaling](scaling::LayerSettings& layer) {
    return LayerScalingSection(layer, scaling.policy);
  };
  return Entries("layers", scaling.layers, section, "what single layers do otherwise")
      .For({"adaptive", "layerwise_dynamic"});
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

// 2^-126 is fp32's smallest normal number, 2^127 its largest power of two.
Range ScaleRange() { return {0x1p-126, 0x1p127, true, true, "2^-126 to 2^127"}; }
Range ShareRange() { return {0, 1, false, true, "above 0, at most 1"}; }

Section ScalingSection(scaling::Settings& scaling) {
  Section section;
  section.path = "scaling";
  section.discriminator = "policy";
  section.choices = scaling::PolicyNames();
  section.default_choice = scaling::Settings().policy;
  section.second_discriminator = "preset";
  section.second_choices = scaling::PresetNames();
  section.default_second_choice = scaling::Settings().preset;
  section.where = &scaling.where;
  // The order of these is that in which a section is written and documented.
  for (const auto& make :
       {GlobalKeys, MovingKeys, PresetKeys, HistogramKeys, LogMaxKeys, AdaptiveKeys}) {
    for (Key& key : make(scaling)) section.keys.push_back(std::move(key));
  }
  section.keys.push_back(
      Switch("reference", scaling.reference,
             "what the original program does to the letter, its defects included")
          .For({"adaptive", "logmax"}));
  section.keys.push_back(OnOverflowKey(scaling));
  section.keys.push_back(LayersKeyOf(scaling));
  section.keys.push_back(
      Entries("groups", scaling.groups, &ScaleGroupSection, "layers that share a scale")
          .For({"layerwise_dynamic"})
          .WrittenIf([&scaling] { return !scaling.groups.empty(); }));
  for (Key& key : section.keys) {
    if (key.name != "scale") continue;
    key.unused = [&scaling] {  // a scale is written only where the policy or a method uses it
      return scaling.policy == "adaptive" && !UsesMethodFixed(scaling);
    };
    key.idle = [](const YamlNode& map) -> std::string {
      const YamlNode* policy = map.Find("policy");
      const bool adaptive = policy != nullptr && policy->text == "adaptive";
      return adaptive && !AnyMethodIsFixed(map) ? "no method uses it" : "";
    };
  }
  section.set_defaults = [&scaling](const std::string& policy) {
    scaling.policy = policy;  // entries of `layers` ask for it
  };
  section.check = [&scaling](const YamlNode& map, const ReadContext& context) {
    CheckScaling(scaling, map, context);
  };
  return section;
}

}  // namespace ada::config
