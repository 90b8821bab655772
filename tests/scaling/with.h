// Short ways to write attempts and the parameters of a dynamic preset, for the tests of the
// machines.
#pragma once
#include <cstdint>

#include "scaling/policies/policies.h"
#include "scaling/policies/presets.h"

namespace ada::scaling::testing {

// 'o': an overflow; others: a clean attempt.
inline StepOutcome Of(char mark) {
  StepOutcome attempt;
  attempt.overflow = mark == 'o';
  return attempt;
}

// A preset with a start, a window and whatever else is to be changed.
struct With {
  DynamicParameters p;
  With(const char* preset, double start, std::int64_t window)
      : p(FindDynamicPreset(preset).parameters) {
    p.init_scale = start;
    p.growth_interval = window;
  }
  With& Factors(double growth, double backoff = 0) {
    p.growth_factor = growth;
    p.backoff_factor = backoff;
    return *this;
  }
  With& Bounds(double min, double max) {
    p.min_scale = min;
    p.max_scale = max;
    return *this;
  }
  With& Hysteresis(std::int64_t n, bool consecutive = false) {
    p.hysteresis = n;
    p.consecutive_hysteresis = consecutive;
    return *this;
  }
  With& Tolerance(double share) {
    p.tolerance = share;
    return *this;
  }
  With& ErrorAtMin(bool on) {
    p.error_at_min_scale = on;
    return *this;
  }
};

}  // namespace ada::scaling::testing
