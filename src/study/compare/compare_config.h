// What differs between the configurations of two runs.
#pragma once
#include <string>
#include <vector>

#include "config/config.h"

namespace ada::study {

struct KeyDifference {
  std::string key;   // "scaling.policy", "model.layers[conv1].channels", "scaling.layers[0].match"
  std::string a, b;  // as YAML on one line; empty: the run has no such key
};

// In the order of the document; keys that only `b` has behind those that `a` has of their section.
// name and output, which two runs never share, are left out.
std::vector<KeyDifference> ConfigDifferences(const config::Config& a, const config::Config& b);

}  // namespace ada::study
