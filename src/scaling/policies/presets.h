// Named parameter sets of the dynamic policy, and the list that `ada-train policies` prints. A new
// preset is a row of the table in presets.cpp (and, where its machine differs in kind, a file of
// its own beside counter_machine.cpp).
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "scaling/policies/dynamic_traits.h"
#include "scaling/policies/policy.h"

namespace ada::scaling {

struct DynamicPreset {
  std::string_view name;         // as in the YAML: scaling.preset
  DynamicParameters parameters;  // defaults, before Resolved
  std::string_view meaning;
  std::string_view source;                  // repository and file that it follows
  std::vector<std::string_view> more_keys;  // beyond the keys that every preset has
  std::int64_t max_retries = 0;             // attempts that may follow the first of a step
  DynamicTraits traits;
};

const std::vector<DynamicPreset>& DynamicPresets();
// Throws ConfigError listing the known names.
const DynamicPreset& FindDynamicPreset(std::string_view name);
// The keys of the `scaling` section that the preset's machine knows, in INTERFACE's order. Throws
// as FindDynamicPreset.
std::vector<std::string_view> KeysOf(std::string_view preset);

// Fills in what follows from other parameters: a backoff_factor of 0 becomes 1 / growth_factor, an
// init_scale of 0 becomes max_scale.
DynamicParameters Resolved(DynamicParameters parameters);

// One line a policy, preset and method: "name: meaning; source; constants".
std::vector<std::string> ListPolicies();

}  // namespace ada::scaling
