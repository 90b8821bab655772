// The one check of a scale that a user gives: S is fp32 in every tensor (DESIGN: "One step").
#pragma once
#include <cmath>
#include <string>

#include "core/error.h"

namespace ada::scaling {

// `value` as fp32. Throws ConfigError naming `key` unless it is positive and finite there.
inline float CheckedScale(const char* key, double value) {
  const float scale = static_cast<float>(value);
  if (!(scale > 0) || !std::isfinite(scale)) {
    throw ConfigError(
        std::string(key) + ": " + std::to_string(value) +
        " is no scale; expected a positive number that fp32 can hold (1e-38 .. 3e38)");
  }
  return scale;
}

}  // namespace ada::scaling
