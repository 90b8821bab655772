// Keys that settings and the parameters of a policy have in common, matched by name; for policies'
// own files. A new key of several policies, or of single layers, is a line here.
#pragma once
#include "scaling/policies/settings.h"

namespace ada::scaling {

// Calls visit(key of `a`, key of `b`) for each key that both structs have.
template <class A, class B, class Visit>
void EachCommonKey(A& a, B& b, const Visit& visit) {
// A key that one of the two structs lacks is skipped, so that one list serves all pairs.
#define ADA_COMMON_KEY(key) \
  if constexpr (requires {  \
                  a.key;    \
                  b.key;    \
                })          \
  visit(a.key, b.key)
  ADA_COMMON_KEY(preset);
  ADA_COMMON_KEY(scale);
  ADA_COMMON_KEY(reference);
  // Keys that determine how the scale moves.
  ADA_COMMON_KEY(init_scale);
  ADA_COMMON_KEY(growth_factor);
  ADA_COMMON_KEY(backoff_factor);
  ADA_COMMON_KEY(growth_interval);
  ADA_COMMON_KEY(min_scale);
  ADA_COMMON_KEY(max_scale);
  ADA_COMMON_KEY(hysteresis);
  ADA_COMMON_KEY(consecutive_hysteresis);
  ADA_COMMON_KEY(error_at_min_scale);
  ADA_COMMON_KEY(tolerance);
  ADA_COMMON_KEY(init_lg_scale);
  ADA_COMMON_KEY(lg_growth);
  ADA_COMMON_KEY(min_window);
  ADA_COMMON_KEY(max_window);
  // Keys that a layer may set under `adaptive`.
  ADA_COMMON_KEY(method);
  ADA_COMMON_KEY(total_scale);
  ADA_COMMON_KEY(underflow_target);
  ADA_COMMON_KEY(scale_upper_bound);
  ADA_COMMON_KEY(accum_upper_bound);
  ADA_COMMON_KEY(u_min);
  ADA_COMMON_KEY(headroom_bits);
  ADA_COMMON_KEY(power_of_two);
  ADA_COMMON_KEY(update_interval);
  ADA_COMMON_KEY(fan);
#undef ADA_COMMON_KEY
}

// `parameters` overridden by the keys that `settings` (Settings or LayerSettings) set.
template <class Given, class Parameters>
Parameters With(const Given& settings, Parameters parameters) {
  EachCommonKey(settings, parameters, [](const auto& given, auto& parameter) {
    if constexpr (requires { given.has_value(); }) {
      if (given) parameter = *given;
    } else {
      parameter = given;
    }
  });
  return parameters;
}

// Sets the unset keys of `settings` to those of `parameters`.
template <class Parameters>
void FillUnset(Settings& settings, const Parameters& parameters) {
  EachCommonKey(settings, parameters, [](auto& setting, const auto& parameter) {
    if constexpr (requires { setting.has_value(); }) {
      if (!setting) setting = parameter;
    }
  });
}

}  // namespace ada::scaling
