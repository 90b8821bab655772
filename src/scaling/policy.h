// Policies: what decides the scale of the logit gradient from attempt to attempt, and the rule of
// each layer. Numbers only: no tensors, no backend, no clock.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "scaling/rules.h"

namespace ada::scaling {

// A policy's state in text that reads back exactly (hexadecimal floats), for checkpoints.
using StateMap = std::map<std::string, std::string>;

struct LayerInfo {
  std::string name;
  double fan_reference = 1;     // out_features, or out_channels * kh * kw
  double fan_exact = 1;         // the same over stride_h * stride_w * groups
  double u_min = 0, u_max = 0;  // of the format of the layer's gradients
};

// What Update did, for events.csv.
struct ScaleChange {
  double before = 1, after = 1;
  std::string reason;  // empty when the scale stayed
};

class Policy {
 public:
  virtual ~Policy() = default;
  virtual std::string_view name() const = 0;  // as in the YAML
  // S of the logit gradient in this attempt (fp32; a state machine may hold more bits).
  virtual double Scale() const = 0;
  // The rule of one layer that computes a dx.
  virtual LayerRule RuleFor(const LayerInfo& layer) const = 0;
  // Tells the policy how the attempt ended. Throws TrainingError where the policy ends the run.
  virtual ScaleChange Update(bool overflow) = 0;
  virtual StateMap SaveState() const = 0;
  virtual void LoadState(const StateMap& state) = 0;  // throws DataError on unknown or missing keys
};

// Settings of one layer under `adaptive`, all resolved.
struct AdaptiveSettings {
  LayerMethod method = LayerMethod::kApproxRange;
  double scale = 1;  // method fixed
  double underflow_target = 1e-3, scale_upper_bound = 16, accum_upper_bound = 1024;
  double u_min = 0;  // 0: the format's
  bool power_of_two = true;
  int update_interval = 1;
  bool fan_exact = true;
};
// Resolves the settings of a layer by name (globs and overrides are the caller's business).
using AdaptiveLookup = std::function<AdaptiveSettings(const std::string& layer)>;

// Parameters of the global dynamic state machine; presets.h names the systems.
struct DynamicParameters {
  double init_scale = 65536, growth_factor = 2, backoff_factor = 0.5;
  int growth_interval = 2000;
  double min_scale = 0, max_scale = 0;  // 0: no bound
};

std::unique_ptr<Policy> MakeNone(double init_scale);
std::unique_ptr<Policy> MakeFixed(double scale);
std::unique_ptr<Policy> MakeDynamic(const DynamicParameters& parameters);
std::unique_ptr<Policy> MakeAdaptive(double init_scale, AdaptiveLookup lookup);

}  // namespace ada::scaling
