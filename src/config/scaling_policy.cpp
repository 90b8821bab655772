// Defaults by policy come from scaling's own structs; see scaling_policy.h.
#include "config/scaling_policy.h"

#include "core/error.h"
#include "core/text.h"
#include "scaling/policies/presets.h"

namespace ada::config {
namespace {

template <class To, class From>
void Default(std::optional<To>& value, From fallback) {
  if (!value) value = static_cast<To>(fallback);
}
// A bound of 0 does not exist: it stays unset.
void DefaultBound(std::optional<double>& value, double fallback) {
  if (!value && fallback != 0) value = fallback;
}

scaling::DynamicParameters DynamicOf(const ScalingConfig& c) {
  scaling::DynamicParameters p = scaling::FindDynamicPreset(c.preset).parameters;
  p.init_scale = c.init_scale.value_or(p.init_scale);
  p.growth_factor = c.growth_factor.value_or(p.growth_factor);
  p.backoff_factor = c.backoff_factor.value_or(p.backoff_factor);
  p.growth_interval = c.growth_interval.value_or(p.growth_interval);
  p.min_scale = c.min_scale.value_or(p.min_scale);
  p.max_scale = c.max_scale.value_or(p.max_scale);
  p.hysteresis = c.hysteresis.value_or(p.hysteresis);
  p.consecutive_hysteresis = c.consecutive_hysteresis.value_or(p.consecutive_hysteresis);
  p.tolerance = c.tolerance.value_or(p.tolerance);
  p.error_at_min_scale = c.error_at_min_scale.value_or(p.error_at_min_scale);
  return p;
}

// Keys that the preset does not know get its machine's defaults too; ToYaml leaves them out.
void FillDynamic(ScalingConfig& c, TrainConfig& train) {
  const scaling::DynamicParameters p = scaling::Resolved(DynamicOf(c));
  Default(c.init_scale, p.init_scale);
  Default(c.growth_factor, p.growth_factor);
  Default(c.backoff_factor, p.backoff_factor);
  Default(c.growth_interval, p.growth_interval);
  DefaultBound(c.min_scale, p.min_scale);
  DefaultBound(c.max_scale, p.max_scale);
  Default(c.hysteresis, p.hysteresis);
  Default(c.consecutive_hysteresis, p.consecutive_hysteresis);
  Default(c.tolerance, p.tolerance);
  Default(c.error_at_min_scale, p.error_at_min_scale);
  if (train.on_overflow == OnOverflow::kPreset &&
      scaling::FindDynamicPreset(c.preset).max_retries > 0)
    train.on_overflow = OnOverflow::kRetry;
}

scaling::LayerMethod MethodOf(Method method) {
  switch (method) {
    case Method::kApproxRange:
      return scaling::LayerMethod::kApproxRange;
    case Method::kLognormal:
      return scaling::LayerMethod::kLognormal;
    case Method::kAbsRange:
      return scaling::LayerMethod::kAbsRange;
    case Method::kElementWiseRange:
      return scaling::LayerMethod::kElementWiseRange;
    case Method::kExactRange:
      return scaling::LayerMethod::kExactRange;
    case Method::kFixed:
      return scaling::LayerMethod::kFixed;
  }
  throw InternalError("MethodOf: unknown method");
}

// value: the last one that a matching entry gives, else `fallback`.
template <class Value>
Value LayerValue(const ScalingConfig& c, const std::string& layer,
                 std::optional<Value> LayerScalingConfig::*key, Value fallback) {
  for (const LayerScalingConfig& entry : c.layers)
    if ((entry.*key) && GlobMatch(entry.match, layer)) fallback = *(entry.*key);
  return fallback;
}

scaling::LogMaxParameters LogMaxOf(const ScalingConfig& c) {
  scaling::LogMaxParameters p;
  p.reference = c.reference;
  p.beta1 = c.beta1, p.beta2 = c.beta2;
  p.overflow_std_dev = c.overflow_std_dev, p.log_max = c.log_max;
  p.min_scale = c.min_scale.value_or(p.min_scale), p.max_scale = c.max_scale.value_or(p.max_scale);
  return p;
}

scaling::HistogramParameters HistogramOf(const ScalingConfig& c) {
  scaling::HistogramParameters p;
  p.init_scale = c.init_scale.value_or(p.init_scale);
  p.update_period = c.update_period;
  p.bin_edge = c.bin_edge, p.threshold = c.threshold;
  p.min_scale = c.min_scale.value_or(p.min_scale), p.max_scale = c.max_scale.value_or(p.max_scale);
  return p;
}

}  // namespace

void FillScalingDefaults(ScalingConfig& c, TrainConfig& train) {
  switch (c.policy) {
    case Policy::kNone:
    case Policy::kAdaptive:
      Default(c.init_scale, 1);
      break;
    case Policy::kFixed:
      break;
    case Policy::kDynamic:
      FillDynamic(c, train);
      break;
    case Policy::kLayerwiseDynamic: {
      const scaling::LayerwiseSettings s;
      Default(c.init_scale, s.init_scale);
      Default(c.growth_factor, s.growth_factor);
      Default(c.backoff_factor, s.backoff_factor);
      Default(c.growth_interval, s.growth_interval);
      Default(c.min_scale, s.min_scale);
      Default(c.max_scale, s.max_scale);
      break;
    }
    case Policy::kLogMax:
    case Policy::kHistogram: {
      const scaling::HistogramParameters h;
      const scaling::LogMaxParameters m;
      const bool logmax = c.policy == Policy::kLogMax;
      if (!logmax) Default(c.init_scale, h.init_scale);
      Default(c.min_scale, logmax ? m.min_scale : h.min_scale);
      Default(c.max_scale, logmax ? m.max_scale : h.max_scale);
      break;
    }
  }
  if (c.min_scale && c.max_scale && *c.min_scale > *c.max_scale)
    throw ConfigError(ToString(c.where) + ": scaling.min_scale: " + ShortestText(*c.min_scale) +
                      " is above max_scale, " + ShortestText(*c.max_scale) +
                      " (given, or the policy's own)");
  if (train.on_overflow == OnOverflow::kPreset) train.on_overflow = OnOverflow::kSkip;
}

void FillDefaults(Config& config) {
  FillScalingDefaults(config.scaling, config.train);
  for (WhatIfConfig& entry : config.log.what_if) {
    TrainConfig unused;  // what a preset says of skipping is the run's own business
    if (entry.scaling) FillScalingDefaults(*entry.scaling, unused);
  }
  PrecisionConfig& p = config.precision;
  const bool reference = config.scaling.policy == Policy::kAdaptive && config.scaling.reference;
  if (reference && !p.weight_gradients) p.weight_gradients = p.gradients.value_or(p.format);
}

std::int64_t MaxRetries(const TrainConfig& train) {
  return train.on_overflow == OnOverflow::kRetry ? train.max_retries : 0;
}

bool OwnsLayerScales(const ScalingConfig& c) {
  return c.policy == Policy::kAdaptive || c.policy == Policy::kLayerwiseDynamic;
}

scaling::AdaptiveSettings SettingsOf(const ScalingConfig& c, const std::string& layer) {
  using L = LayerScalingConfig;
  scaling::AdaptiveSettings s;
  s.method = MethodOf(LayerValue(c, layer, &L::method, c.method));
  s.scale = LayerValue(c, layer, &L::scale, c.scale);
  s.underflow_target = LayerValue(c, layer, &L::underflow_target, c.underflow_target);
  s.scale_upper_bound = LayerValue(c, layer, &L::scale_upper_bound, c.scale_upper_bound);
  s.accum_upper_bound = LayerValue(c, layer, &L::accum_upper_bound, c.accum_upper_bound);
  s.u_min = LayerValue(c, layer, &L::u_min, c.u_min.value_or(0));
  s.headroom_bits = LayerValue(c, layer, &L::headroom_bits, c.headroom_bits);
  s.power_of_two = LayerValue(c, layer, &L::power_of_two, c.power_of_two);
  s.update_interval = LayerValue(c, layer, &L::update_interval, c.update_interval);
  s.fan_exact = LayerValue(c, layer, &L::fan, c.fan) == Fan::kExact;
  s.reference = c.reference;
  return s;
}

scaling::LayerwiseSettings LayerwiseSettingsOf(const ScalingConfig& c, const std::string& layer) {
  using L = LayerScalingConfig;
  scaling::LayerwiseSettings s;
  s.init_scale = LayerValue(c, layer, &L::init_scale, c.init_scale.value_or(s.init_scale));
  s.growth_factor =
      LayerValue(c, layer, &L::growth_factor, c.growth_factor.value_or(s.growth_factor));
  s.backoff_factor =
      LayerValue(c, layer, &L::backoff_factor, c.backoff_factor.value_or(s.backoff_factor));
  s.growth_interval = LayerValue(c, layer, &L::growth_interval,
                                 c.growth_interval.value_or(static_cast<int>(s.growth_interval)));
  s.min_scale = LayerValue(c, layer, &L::min_scale, c.min_scale.value_or(s.min_scale));
  s.max_scale = LayerValue(c, layer, &L::max_scale, c.max_scale.value_or(s.max_scale));
  return s;
}

std::unique_ptr<scaling::Policy> MakePolicy(const ScalingConfig& c) {
  switch (c.policy) {
    case Policy::kNone:
      return scaling::MakeNone(c.init_scale.value_or(1));
    case Policy::kFixed:
      return scaling::MakeFixed(c.scale);
    case Policy::kDynamic:
      return scaling::MakeDynamic(DynamicOf(c));
    case Policy::kAdaptive:
      return scaling::MakeAdaptive(c.init_scale.value_or(1),
                                   [c](const std::string& layer) { return SettingsOf(c, layer); });
    case Policy::kLayerwiseDynamic:
      return scaling::MakeLayerwiseDynamic(
          c.init_scale.value_or(scaling::LayerwiseSettings{}.init_scale),
          [c](const std::string& layer) { return LayerwiseSettingsOf(c, layer); });
    case Policy::kLogMax:
      return scaling::MakeLogMax(LogMaxOf(c));
    case Policy::kHistogram:
      return scaling::MakeHistogram(HistogramOf(c));
  }
  throw InternalError("MakePolicy: unknown policy");
}

}  // namespace ada::config
