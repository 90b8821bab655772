// Named parameter sets of the dynamic policy, and the list that `ada-train policies` prints. A new
// preset is a row of the table in presets.cpp (and, where its machine differs, a branch in
// dynamic_policy.cpp).
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "scaling/policy.h"

namespace ada::scaling {

struct DynamicPreset {
  std::string_view name;  // as in the YAML: scaling.preset
  DynamicParameters parameters;
  std::string_view meaning;
  std::string_view source;  // repository and file that it follows
};

const std::vector<DynamicPreset>& DynamicPresets();
// Throws ConfigError listing the known names.
const DynamicPreset& FindDynamicPreset(std::string_view name);

// One line a policy (and preset): "name: meaning; source; constants".
std::vector<std::string> ListPolicies();

}  // namespace ada::scaling
