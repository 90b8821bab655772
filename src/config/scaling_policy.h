// From the `scaling:` section to a policy: the defaults that belong to a policy or preset, the
// settings of single layers, the policy object. The same way for training, replay and inspect.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "config/config.h"
#include "scaling/policies/policy.h"

namespace ada::config {

// Fills in what is unset: the start, factors and bounds of the policy or preset, and
// train.on_overflow (what the preset does). Throws ConfigError, with its place, for bounds that
// cross.
void FillScalingDefaults(ScalingConfig& scaling, TrainConfig& train);
// The same for a whole configuration; scaling.reference brings precision.weight_gradients in the
// gradients' format, as the authors' program has them, unless they are set.
void FillDefaults(Config& config);

// Of filled-in sections.
std::unique_ptr<scaling::Policy> MakePolicy(const ScalingConfig& scaling);
// Attempts that may follow the first of a step.
std::int64_t MaxRetries(const TrainConfig& train);

// The settings of one layer under `adaptive`: `scaling`, then each matching entry of
// `scaling.layers` key by key.
scaling::AdaptiveSettings SettingsOf(const ScalingConfig& scaling, const std::string& layer);
// The same of one layer under `layerwise_dynamic`.
scaling::LayerwiseSettings LayerwiseSettingsOf(const ScalingConfig& scaling,
                                               const std::string& layer);
// Whether the policy decides a scale for each layer, so that no other scale of gradients may.
bool OwnsLayerScales(const ScalingConfig& scaling);

}  // namespace ada::config
