// A recommendation as configuration: formats of layers into `precision`, and the sections that
// change as YAML.
#pragma once
#include <map>
#include <set>
#include <string>
#include <vector>

#include "config/config.h"

namespace ada::study {

// An entry of precision.layers, and the tensors that ask for it.
struct FormatChange {
  std::string layer, role;  // gradients, activations, weights, weight_gradients
  NumberFormat format;
  std::vector<std::string> tensors;
};

// By role the layers whose formats a run's recorded tensors have.
using Owners = std::map<std::string, std::set<std::string>>;

// Adds the changes to `precision`, behind the entries that it has: the last match wins. Where it
// has none and every owner of a role changes, the role's own key says it for most of them.
void ApplyFormats(const std::vector<FormatChange>& changes, const Owners& owners,
                  config::PrecisionConfig& precision);

// `scaling:` of `config`, the keys of policy none, fixed and adaptive with exact_range that matter;
// with_precision: and its whole `precision:`.
std::string FragmentOf(const config::Config& config, bool with_precision);

}  // namespace ada::study
