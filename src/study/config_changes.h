// What has to be laid over a configuration (train --with) to make another of it: `recommend`,
// `advise` and `assign` write it.
#pragma once
#include <array>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "config/config.h"

namespace ada::study {

// Keys of a section with their values as YAML on one line, each once.
using Keys = std::vector<std::pair<std::string, std::string>>;
// The keys of `section` (scaling or precision) in `now` that have other values in `then`. Keys that
// only `now` has are reset, where `then` would take them: laid over it, a section without them
// would leave them as they are.
Keys ChangedKeys(const std::string& section, const config::Config& now, const config::Config& then);
// The value that the configuration has for the key, which it has.
std::string ValueText(const config::Config& config, const char* section, const char* key);

// A role of tensors: its key of `precision` and of entries of its layers.
struct FormatRole {
  const char* name;
  std::optional<NumberFormat> config::RoleFormatsConfig::*member;
};
inline constexpr std::array<FormatRole, 4> kFormatRoles = {{
    {"activations", &config::RoleFormatsConfig::activations},
    {"weights", &config::RoleFormatsConfig::weights},
    {"gradients", &config::RoleFormatsConfig::gradients},
    {"weight_gradients", &config::RoleFormatsConfig::weight_gradients},
}};
// The key of `precision` that says the format of a layer's tensor: y, p, w, dw, or a gradient that
// carries S.
std::string RoleOf(const std::string& tensor);
// Whether precision.preset leaves no room for the role's key; entries of precision.layers have it.
bool PresetDecides(const config::PrecisionConfig& precision, const std::string& role);
// Whether an entry of precision.layers sets the format of a role.
bool SetsRole(const config::LayerPrecisionConfig& entry, const std::string& role);

// An entry of precision.layers, and the tensors that ask for it, as dx and dy of one layer do.
struct FormatChange {
  std::string layer, role;  // gradients, activations, weights, weight_gradients
  NumberFormat format;
  std::vector<std::string> tensors;
};

// By role the layers whose formats a run's recorded tensors have.
using Owners = std::map<std::string, std::set<std::string>>;

// Adds the changes to `precision`, after the entries that it has: the last match wins. Where it has
// none and every owner of a role changes, the role's own key says it for most of them, unless a
// preset decides it. Entries of precision.schedule that would undo a change have it as well.
void ApplyFormats(const std::vector<FormatChange>& changes, const Owners& owners,
                  config::PrecisionConfig& precision);

// The keys of `scaling` that make of the run's what `config` has: policy none, fixed, or adaptive
// with exact_range, and keys of the run that this resets.
Keys ScalingKeys(const config::Config& config, const config::Config& run);
// The keys of `precision` that round all operands to nearest in one format, without a recipe or a
// transform; layers that were spared stay spared. Empty where all have this format already.
Keys OperandKeys(const AnyFormat& format, const config::Config& run);
// The keys that make of the run's `operands` those of `then`, whose recipe they replace.
Keys OperandKeys(config::Config then, const config::Config& run);

}  // namespace ada::study
