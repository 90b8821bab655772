// Checks across the keys of `scaling`: scales and methods that go together, bounds in their order.
#include <algorithm>

#include "config/sections/sections.h"
#include "error.h"
#include "io/text.h"
#include "scaling/policies/presets.h"

namespace ada::config {
namespace {

using scaling::LayerMethod;

constexpr char kNoScale[] = "missing; method fixed needs it: the constant alpha";

std::vector<YamlNode> LayersOf(const YamlNode& map) {
  const YamlNode* layers = map.Find("layers");
  return layers ? layers->items : std::vector<YamlNode>();
}

// A scale that no method uses.
// A scale that nothing reads would look as if it did something.
void RefuseScales(const YamlNode& map, const ReadContext& context) {
  const char* message = "only method fixed uses a scale, and no layer has it";
  if (const YamlNode* scale = map.Find("scale")) {
    context.problems.Add(*scale, Join(context.path, "scale"), message);
  }
  for (const YamlNode& layer : LayersOf(map)) {
    const YamlNode* own = layer.Find("scale");
    if (own) context.problems.Add(*own, Join(context.path, "layers[].scale"), message);
  }
}

// `scale` and method fixed go together, in the section and in its layers.
void CheckFixedMethod(const scaling::Settings& scaling, const YamlNode& map,
                      const ReadContext& context) {
  if (!UsesMethodFixed(scaling)) {
    RefuseScales(map, context);
    return;
  }
  if (map.Find("scale")) return;
  // The section's own method needs the section's scale; a layer's method may take its scale from
  // its own entry, from another entry that matches, or from the section.
  if (scaling.adaptive.method == LayerMethod::kFixed) {
    context.problems.Add(map.Find("method") ? *map.Find("method") : context.key,
                         Join(context.path, "scale"), kNoScale);
    return;
  }
  const bool layer_scale = std::any_of(scaling.layers.begin(), scaling.layers.end(),
                                       [](const auto& layer) { return layer.scale.has_value(); });
  const YamlNode* layers = map.Find("layers");
  if (!layer_scale && layers) {
    context.problems.Add(*layers, Join(context.path, "layers[].scale"), kNoScale);
  }
}

// The authors' program knows neither our method nor an alpha of batch norms.
void CheckReference(const scaling::Settings& scaling, const YamlNode& map,
                    const ReadContext& context) {
  if (!scaling.reference) return;
  if (scaling.adaptive.batch_norm && map.Find("batch_norm")) {
    context.problems.Add(*map.Find("batch_norm"), Join(context.path, "batch_norm"),
                         "the original program, which `reference` follows, gives batch norms no "
                         "alpha; leave out one of the two");
  }
  const char* message = "the original program, which `reference` follows, has no exact_range";
  if (scaling.adaptive.method == LayerMethod::kExactRange) {
    context.problems.Add(*map.Find("method"), Join(context.path, "method"), message);
  }
  for (const YamlNode& layer : LayersOf(map)) {
    const YamlNode* method = layer.Find("method");
    if (method && method->text == "exact_range") {
      context.problems.Add(*method, Join(context.path, "layers[].method"), message);
    }
    if (const YamlNode* total = layer.Find("total_scale"))
      context.problems.Add(*total, Join(context.path, "layers[].total_scale"),
                           "the original program, which `reference` follows, has no S by layer");
  }
}

// Under `dynamic` a bound of 0 stands for none; elsewhere a scale of 0 would wipe all gradients.
void CheckBounds(const scaling::Settings& scaling, const YamlNode& map,
                 const ReadContext& context) {
  const bool dynamic = scaling.policy == "dynamic";
  const auto check = [&](const char* name, const std::optional<double>& bound) {
    if (dynamic || !bound || ScaleRange().Contains(*bound)) return true;
    const YamlNode& node = *map.Find(name);
    context.problems.Add(node, Join(context.path, name),
                         Expected("a number, " + ScaleRange().Text(), node));
    return false;
  };
  const bool low = check("min_scale", scaling.min_scale);
  const bool high = check("max_scale", scaling.max_scale);
  if (!low || !high) return;
  if (scaling::BoundsCross(scaling.min_scale, scaling.max_scale)) {
    context.problems.Add(*map.Find("min_scale"), Join(context.path, "min_scale"),
                         "must not be above max_scale");
  }
}

// Whether a layer may have a name that both globs match.
// Two globs are taken to meet without a closer look, so that nothing is refused that may be right.
bool MayMeet(const std::string& a, const std::string& b) {
  const auto is_name = [](const std::string& glob) {
    return glob.find_first_of("*?[") == std::string::npos;
  };
  if (is_name(a)) return GlobMatch(b, a);
  return !is_name(b) || GlobMatch(a, b);
}

}  // namespace

// An entry that gives one bound takes the other from another entry or from the section. Only where
// no other entry can give it is the section's the one that counts, and a crossing certain.
void CheckLayerBounds(const scaling::Settings& scaling) {
  using Bound = std::optional<double> scaling::LayerSettings::*;
  const auto given_elsewhere = [&](const scaling::LayerSettings& entry, Bound bound) {
    return std::any_of(scaling.layers.begin(), scaling.layers.end(), [&](const auto& other) {
      return (other.*bound).has_value() && MayMeet(other.match, entry.match);
    });
  };
  const auto fail = [](const scaling::LayerSettings& entry, const std::string& problem) {
    throw ConfigError(ToString(entry.where) + ": scaling.layers[]." + problem +
                      " of `scaling` (given, or the policy's own), for layers '" + entry.match +
                      "'; give both here");
  };
  for (const scaling::LayerSettings& entry : scaling.layers) {
    if (entry.max_scale && scaling::BoundsCross(scaling.min_scale, entry.max_scale) &&
        !given_elsewhere(entry, &scaling::LayerSettings::min_scale))
      fail(entry, "max_scale: " + ShortestText(*entry.max_scale) + " is below min_scale, " +
                      ShortestText(*scaling.min_scale) + ",");
    if (entry.min_scale && scaling::BoundsCross(entry.min_scale, scaling.max_scale) &&
        !given_elsewhere(entry, &scaling::LayerSettings::max_scale))
      fail(entry, "min_scale: " + ShortestText(*entry.min_scale) + " is above max_scale, " +
                      ShortestText(*scaling.max_scale) + ",");
  }
}

bool AnyMethodIsFixed(const YamlNode& map) {
  const auto fixed = [](const YamlNode& of) {
    const YamlNode* method = of.Find("method");
    return method != nullptr && method->text == "fixed";
  };
  const std::vector<YamlNode> layers = LayersOf(map);
  return fixed(map) || std::any_of(layers.begin(), layers.end(), fixed);
}

bool UsesMethodFixed(const scaling::Settings& scaling) {
  const auto fixed = [](const scaling::LayerSettings& layer) {
    return layer.method == LayerMethod::kFixed;
  };
  return scaling.adaptive.method == LayerMethod::kFixed ||
         std::any_of(scaling.layers.begin(), scaling.layers.end(), fixed);
}

namespace {

// A preset without the keys that nearly all have.
void CheckCommonKeys(const scaling::Settings& scaling, const YamlNode& map,
                     const ReadContext& context) {
  if (scaling.policy != "dynamic" || scaling::HasCommonKeys(scaling.preset)) return;
  for (const char* key : {"init_scale", "growth_factor", "backoff_factor", "growth_interval",
                          "min_scale", "max_scale", "error_at_min_scale"})
    if (const YamlNode* node = map.Find(key))
      context.problems.Add(*node, Join(context.path, key),
                           "preset " + scaling.preset + " knows no such key; it has " +
                               "init_lg_scale and lg_growth");
}

}  // namespace

void CheckScaling(scaling::Settings& scaling, const YamlNode& map, const ReadContext& context) {
  CheckCommonKeys(scaling, map, context);
  CheckBounds(scaling, map, context);
  if (scaling.policy != "adaptive") return;
  CheckFixedMethod(scaling, map, context);
  CheckReference(scaling, map, context);
  if (scaling.reference && !map.Find("fan")) scaling.adaptive.fan = scaling::Fan::kReference;
}

}  // namespace ada::config
