#include "config/scaling_policy.h"

#include "core/error.h"
#include "core/text.h"
#include "scaling/policies/presets.h"

namespace ada::config {

void FillScalingDefaults(scaling::Settings& s, TrainConfig& train) {
  scaling::FillDefaults(s);
  if (scaling::BoundsCross(s.min_scale, s.max_scale))
    throw ConfigError(ToString(s.where) + ": scaling.min_scale: " + ShortestText(*s.min_scale) +
                      " is above max_scale, " + ShortestText(*s.max_scale) +
                      " (given, or the policy's own)");
  if (train.on_overflow == OnOverflow::kPreset)
    train.on_overflow = scaling::RetriesSkippedSteps(s) ? OnOverflow::kRetry : OnOverflow::kSkip;
}

void FillDefaults(Config& config) {
  FillScalingDefaults(config.scaling, config.train);
  for (WhatIfConfig& entry : config.log.what_if) {
    TrainConfig unused;  // what a preset says of skipping is the run's own business
    if (entry.scaling) FillScalingDefaults(*entry.scaling, unused);
  }
  PrecisionConfig& p = config.precision;
  if (!p.weight_gradients && scaling::MakePolicy(config.scaling)->FollowsReference())
    p.weight_gradients = p.gradients.value_or(p.format);
}

std::int64_t MaxRetries(const TrainConfig& train) {
  return train.on_overflow == OnOverflow::kRetry ? train.max_retries : 0;
}

}  // namespace ada::config
