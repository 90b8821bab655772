// What the files of the `scaling` section share: names, ranges, and the parts of its table.
#pragma once
#include <string>
#include <vector>

#include "config/keys.h"

namespace ada::config {

// A scale is an fp32 value; powers of two beside its limits keep products finite.
Range ScaleRange();
Range ShareRange();  // above 0, at most 1

// The keys of policy adaptive, without `scale` and `layers`.
std::vector<Key> AdaptiveKeys(scaling::Settings& scaling);
// Whether the section or one of its layers says `method: fixed`.
bool UsesMethodFixed(const scaling::Settings& scaling);
// Checks across the section's keys; under `reference`, `fan` is the reference's unless it is given.
void CheckScaling(scaling::Settings& scaling, const YamlNode& map, const Reading& reading);

}  // namespace ada::config
