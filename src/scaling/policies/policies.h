// The table of policies. A new policy needs a file of its own, its parameters in settings.h, its
// row here, and its keys in config/sections/section_scaling.cpp.
#pragma once
#include <array>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "scaling/policies/policy.h"
#include "scaling/policies/settings.h"

namespace ada::scaling {

// Fills in unset keys whose default depends on the policy or preset: start, factors, bounds.
void FillDefaults(Settings& settings);
// The settings of one layer: `scaling`, then each matching entry of `scaling.layers` key by key.
LayerwiseSettings LayerwiseDefaults(const Settings& settings);  // of the preset
AdaptiveSettings AdaptiveOf(const Settings& settings, const std::string& layer);
LayerwiseSettings LayerwiseOf(const Settings& settings, const std::string& layer);
// Makes the policy of filled-in settings. Throws ConfigError if they are not valid for one.
std::unique_ptr<Policy> MakePolicy(const Settings& settings);

// --- The policies --------------------------------------------------------------------------------

struct PolicyKind {
  std::string_view name;                             // as in the YAML: scaling.policy
  void (*fill_defaults)(Settings&);                  // see FillDefaults
  std::unique_ptr<Policy> (*make)(const Settings&);  // of filled-in settings
  std::vector<std::string> (*describe)();            // see ListPolicies
};
extern const PolicyKind kNone, kFixed, kDynamic, kAdaptive, kLayerwiseDynamic, kLogMax, kHistogram;
// In the order of lists and messages.
inline constexpr std::array kPolicies = {
    &kNone, &kFixed, &kDynamic, &kAdaptive, &kLayerwiseDynamic, &kLogMax, &kHistogram};

std::vector<std::string> PolicyNames();
// One line a policy, preset and method: "name: meaning; source; constants".
std::vector<std::string> ListPolicies();

// Resolves the settings of a layer by its name.
using AdaptiveLookup = std::function<AdaptiveSettings(const std::string& layer)>;
using LayerwiseLookup = std::function<LayerwiseSettings(const std::string& layer)>;

std::unique_ptr<Policy> MakeNone(double init_scale, const OverflowRepair& repair = {});
std::unique_ptr<Policy> MakeFixed(double scale, const OverflowRepair& repair = {});
std::unique_ptr<Policy> MakeDynamic(const DynamicParameters& parameters);
std::unique_ptr<Policy> MakeAdaptive(double init_scale, AdaptiveLookup lookup);
// groups: layers that share a scale, whose settings are those of the group's first layer.
std::unique_ptr<Policy> MakeLayerwiseDynamic(double init_scale, LayerwiseLookup lookup,
                                             std::vector<ScaleGroup> groups = {});
std::unique_ptr<Policy> MakeLogMax(const LogMaxParameters& parameters);
std::unique_ptr<Policy> MakeHistogram(const HistogramParameters& parameters);

}  // namespace ada::scaling
