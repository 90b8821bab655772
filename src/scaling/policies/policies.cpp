// From settings to policies and to the settings of single layers.
#include "scaling/policies/policies.h"

#include <algorithm>
#include <cmath>

#include "error.h"
#include "io/tensor_names.h"
#include "io/text.h"
#include "scaling/policies/common_keys.h"
#include "scaling/policies/start_scale.h"

namespace ada::scaling {
namespace {

const PolicyKind& FindPolicy(const std::string& name) {
  const auto found = std::find_if(kPolicies.begin(), kPolicies.end(),
                                  [&](const PolicyKind* kind) { return kind->name == name; });
  if (found == kPolicies.end()) throw InternalError("unknown policy '" + name + "'");
  return **found;
}

// A decision within attention, LAYER.ds, is reached by its own name and by its layer's.
bool Reaches(const std::string& glob, const std::string& name) {
  return GlobMatch(glob, name) || GlobMatch(glob, PartsOfDecision(name).layer);
}

template <class Parameters>
Parameters OfLayer(const Settings& settings, const std::string& layer, Parameters parameters) {
  parameters = With(settings, parameters);
  for (const LayerSettings& entry : settings.layers)
    if (Reaches(entry.match, layer)) parameters = With(entry, parameters);
  return parameters;
}

}  // namespace

std::string WhyForGood(double scale) {
  if (scale == 0) return "any factor leaves it 0";
  return std::isinf(scale) ? "any factor leaves it so" : "";
}
std::string StaysForGood(double scale) {
  const std::string why = WhyForGood(scale);
  if (why.empty()) return why;
  return std::string("; it is ") + (scale == 0 ? "0" : "infinite") + " now for good, since " + why;
}

void CheckBounds(double min_scale, double max_scale) {
  CheckedScale("scaling.min_scale", min_scale);
  CheckedScale("scaling.max_scale", max_scale);
  if (!BoundsCross(min_scale, max_scale)) return;
  throw ConfigError("scaling.min_scale: " + ShortestText(min_scale) +
                    ", expected at most max_scale, " + ShortestText(max_scale));
}

float CheckedScale(const char* key, double value) {
  const float scale = static_cast<float>(value);
  if (scale > 0 && std::isfinite(scale)) return scale;
  throw ConfigError(std::string(key) + ": " + std::to_string(value) +
                    " is no scale; expected a positive number that fp32 can hold (1e-38 .. 3e38)");
}

void FillDefaults(Settings& settings) { FindPolicy(settings.policy).fill_defaults(settings); }

AdaptiveSettings AdaptiveOf(const Settings& settings, const std::string& layer) {
  return OfLayer(settings, layer, settings.adaptive);
}

LayerwiseSettings LayerwiseOf(const Settings& settings, const std::string& layer) {
  const LayerwiseSettings own = OfLayer(settings, layer, LayerwiseDefaults(settings));
  if (!BoundsCross(own.min_scale, own.max_scale)) return own;
  Location where = settings.where;
  for (const LayerSettings& entry : settings.layers)
    if (Reaches(entry.match, layer) && (entry.min_scale || entry.max_scale)) where = entry.where;
  throw ConfigError(ToString(where) + ": scaling.layers[]: layer " + layer + " has min_scale " +
                    ShortestText(own.min_scale) + ", above its max_scale, " +
                    ShortestText(own.max_scale));
}

std::unique_ptr<Policy> MakePolicy(const Settings& settings) {
  if (settings.auto_init_scale) return MakeAutoStart(settings, MakePolicy);
  return FindPolicy(settings.policy).make(settings);
}

std::vector<std::string> PolicyNames() {
  std::vector<std::string> names;
  for (const PolicyKind* kind : kPolicies) names.emplace_back(kind->name);
  return names;
}

std::vector<std::string> ListPolicies() {
  std::vector<std::string> lines;
  for (const PolicyKind* kind : kPolicies)
    for (std::string& line : kind->describe()) lines.push_back(std::move(line));
  return lines;
}

}  // namespace ada::scaling
