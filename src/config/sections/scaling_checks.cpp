// Checks across the keys of `scaling`: scales and methods that go together, bounds in their order.
#include <algorithm>

#include "config/sections/scaling_keys.h"

namespace ada::config {
namespace {

using scaling::LayerMethod;

constexpr char kNoScale[] = "missing; method fixed needs it: the constant alpha";

std::vector<YamlNode> LayersOf(const YamlNode& map) {
  const YamlNode* layers = map.Find("layers");
  return layers ? layers->items : std::vector<YamlNode>();
}

// A scale that no method uses.
void RefuseScales(const YamlNode& map, const Reading& reading) {
  const char* message = "only method fixed uses a scale, and no layer has it";
  if (const YamlNode* scale = map.Find("scale")) {
    reading.problems.Add(*scale, Join(reading.path, "scale"), message);
  }
  for (const YamlNode& layer : LayersOf(map)) {
    const YamlNode* own = layer.Find("scale");
    if (own) reading.problems.Add(*own, Join(reading.path, "layers[].scale"), message);
  }
}

// `scale` and method fixed go together, in the section and in its layers.
void CheckFixedMethod(const scaling::Settings& scaling, const YamlNode& map,
                      const Reading& reading) {
  if (!UsesMethodFixed(scaling)) {
    RefuseScales(map, reading);
    return;
  }
  if (map.Find("scale")) return;
  if (scaling.adaptive.method == LayerMethod::kFixed) {
    reading.problems.Add(map.Find("method") ? *map.Find("method") : reading.key,
                         Join(reading.path, "scale"), kNoScale);
    return;
  }
  const bool layer_scale = std::any_of(scaling.layers.begin(), scaling.layers.end(),
                                       [](const auto& layer) { return layer.scale.has_value(); });
  const YamlNode* layers = map.Find("layers");
  if (!layer_scale && layers) {
    reading.problems.Add(*layers, Join(reading.path, "layers[].scale"), kNoScale);
  }
}

// The authors' program knows neither our method nor its key.
void CheckReference(const scaling::Settings& scaling, const YamlNode& map, const Reading& reading) {
  if (!scaling.reference) return;
  const char* message = "the original program, which `reference` follows, has no exact_range";
  if (scaling.adaptive.method == LayerMethod::kExactRange) {
    reading.problems.Add(*map.Find("method"), Join(reading.path, "method"), message);
  }
  for (const YamlNode& layer : LayersOf(map)) {
    const YamlNode* method = layer.Find("method");
    if (method && method->text == "exact_range") {
      reading.problems.Add(*method, Join(reading.path, "layers[].method"), message);
    }
  }
}

// Under `dynamic` a bound of 0 stands for none; elsewhere a scale of 0 would wipe all gradients.
void CheckBounds(const scaling::Settings& scaling, const YamlNode& map, const Reading& reading) {
  const bool dynamic = scaling.policy == "dynamic";
  const auto check = [&](const char* name, const std::optional<double>& bound) {
    if (dynamic || !bound || ScaleRange().Contains(*bound)) return true;
    const YamlNode& node = *map.Find(name);
    reading.problems.Add(node, Join(reading.path, name),
                         Expected("a number, " + ScaleRange().Words(), node));
    return false;
  };
  const bool low = check("min_scale", scaling.min_scale);
  const bool high = check("max_scale", scaling.max_scale);
  if (!low || !high) return;
  if (scaling::BoundsCross(scaling.min_scale, scaling.max_scale)) {
    reading.problems.Add(*map.Find("min_scale"), Join(reading.path, "min_scale"),
                         "must not be above max_scale");
  }
}

}  // namespace

bool UsesMethodFixed(const scaling::Settings& scaling) {
  const auto fixed = [](const scaling::LayerSettings& layer) {
    return layer.method == LayerMethod::kFixed;
  };
  return scaling.adaptive.method == LayerMethod::kFixed ||
         std::any_of(scaling.layers.begin(), scaling.layers.end(), fixed);
}

void CheckScaling(scaling::Settings& scaling, const YamlNode& map, const Reading& reading) {
  CheckBounds(scaling, map, reading);
  if (scaling.policy != "adaptive") return;
  CheckFixedMethod(scaling, map, reading);
  CheckReference(scaling, map, reading);
  if (scaling.reference && !map.Find("fan")) scaling.adaptive.fan = scaling::Fan::kReference;
}

}  // namespace ada::config
