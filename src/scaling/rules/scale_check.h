// The checks of scales that a user gives: S is fp32 in every tensor (DESIGN: "One step").
#pragma once
#include <cmath>
#include <string>

#include "core/error.h"
#include "core/text.h"

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

// Throws ConfigError unless both are scales and in order.
inline void CheckBounds(double min_scale, double max_scale) {
  CheckedScale("scaling.min_scale", min_scale);
  CheckedScale("scaling.max_scale", max_scale);
  if (min_scale <= max_scale) return;
  throw ConfigError("scaling.min_scale: " + ShortestText(min_scale) +
                    ", expected at most max_scale, " + ShortestText(max_scale));
}

}  // namespace ada::scaling
