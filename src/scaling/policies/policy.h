// Policies: what decides the scale of the logit gradient from attempt to attempt, the rule of each
// layer, and what becomes of an attempt whose gradients are not finite. Numbers only: no tensors,
// no backend, no clock. Training and `ada-train replay` drive the same objects.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "scaling/rules/rules.h"
#include "scaling/rules/state_map.h"

namespace ada::scaling {

struct LayerInfo {
  std::string name;
  double fan_reference = 1;     // out_features, or out_channels * kh * kw
  double fan_exact = 1;         // the same over stride_h * stride_w * groups
  double u_min = 0, u_max = 0;  // of the format of the layer's dx
  bool has_weight = true;       // false: a cast (`kind: scale`)
  bool fp16_gradients = false;  // the layer's dy is stored in fp16
};

// What a policy wants to know of the next attempt beyond `overflow`.
struct StatsRequest {
  bool amax = false;    // StepOutcome::amax
  bool layers = false;  // StepOutcome::layer_overflow
  double edge = 0;  // StepOutcome::above and below: magnitudes at edge * largest value; 0: not now
};

// How an attempt ended.
struct StepOutcome {
  bool overflow = false;              // some weight gradient is not finite
  double amax = 0;                    // largest |unscaled weight gradient|; inf, NaN allowed
  std::int64_t above = 0, below = 0;  // values of all rounded dx above the edge, and others
  std::map<std::string, bool> layer_overflow;  // by layer that RuleFor has named
};

enum class Action : std::uint8_t {
  kUpdate,    // the optimizer updates
  kSkip,      // the weights stay
  kSanitize,  // NaN become 0 and inf the largest value of the format, then the optimizer updates
};

// What Update decided.
struct ScaleUpdate {
  Action action = Action::kUpdate;
  double before = 1, after = 1;  // the scale of this attempt and of the next
  std::string reason;            // why it changed; empty when it stayed
  std::string error;             // not empty: the policy ends the run, in the original's sense
};

class Policy {
 public:
  virtual ~Policy() = default;
  virtual std::string_view name() const = 0;  // as in the YAML
  // S of the logit gradient in this attempt, in the original's own type (fp32 or double).
  virtual double Scale() const = 0;
  // The rule of one layer that computes a dx. Called once a layer, in forward order, before the
  // first attempt.
  virtual LayerRule RuleFor(const LayerInfo& layer) = 0;
  // layerwise_dynamic: the layer's own S in this attempt. Others: 1.
  virtual double LayerScale(const std::string& /*layer*/) const { return 1; }
  virtual StatsRequest RequiredStats() const { return {}; }
  // What Update will do about the next attempt where it overflows, known before it so that a device
  // can act without asking. Where it does not overflow, and with StatsRequest::layers no layer
  // does, Update updates; where a layer alone does, it skips.
  virtual Action OnOverflow() const { return Action::kSkip; }
  virtual ScaleUpdate Update(const StepOutcome& attempt) = 0;
  virtual StateMap SaveState() const = 0;
  virtual void LoadState(const StateMap& state) = 0;  // throws DataError on unknown or missing keys
};

// What a training step does about an attempt that the policy skips: give the step up, or try the
// same update again with the next batch (NNabla). Counts steps and attempts for training and
// replay alike.
class RetryRule {
 public:
  // max_retries 0: never retry.
  explicit RetryRule(std::int64_t max_retries) : max_retries_(max_retries) {}
  // Tells how the attempt ended; true: the next attempt belongs to the same step.
  bool Next(bool skipped) {
    const bool retry = skipped && retries_ < max_retries_;
    retries_ = retry ? retries_ + 1 : 0;
    return retry;
  }
  std::int64_t retries() const { return retries_; }  // of the present step so far
  void Restore(std::int64_t retries) { retries_ = retries; }

 private:
  std::int64_t max_retries_, retries_ = 0;
};

// Settings of one layer under `adaptive`, all resolved.
struct AdaptiveSettings {
  LayerMethod method = LayerMethod::kApproxRange;
  double scale = 1;  // method fixed
  double underflow_target = 1e-3, scale_upper_bound = 16, accum_upper_bound = 1024;
  double u_min = 0;  // 0: the format's
  double headroom_bits = 4;
  bool power_of_two = true, reference = false;
  int update_interval = 1;
  bool fan_exact = true;
};
// Resolves the settings of a layer by name (globs and overrides are the caller's business).
using AdaptiveLookup = std::function<AdaptiveSettings(const std::string& layer)>;

// Parameters of the global dynamic state machine; all but `preset` are YAML keys. Defaults of a
// preset stand in presets.cpp; what has no key (types, windows, kinds of machines) in
// dynamic_traits.h.
struct DynamicParameters {
  std::string preset = "pytorch";
  double init_scale = 65536;  // 0: max_scale
  double growth_factor = 2;
  double backoff_factor = 0.5;  // 0: 1 / growth_factor; where the original divides, by 1 / this
  std::int64_t growth_interval = 2000;
  double min_scale = 0, max_scale = 0;  // 0: no bound
  std::int64_t hysteresis = 1;          // overflows needed before the scale falls
  bool consecutive_hysteresis = false;  // refilled by each clean attempt
  double tolerance = 0;                 // share of overflows that is tolerated
  bool error_at_min_scale = false;      // an overflow at the floor ends the run
};

struct LogMaxParameters {
  bool reference = false;
  double beta1 = 0.99, beta2 = 0.999, overflow_std_dev = 3.09, log_max = 16;
  double min_scale = 1, max_scale = 16384;
};
struct HistogramParameters {
  double init_scale = 65536;
  std::int64_t update_period = 1000;
  double bin_edge = 0.125, threshold = 1e-7;
  double min_scale = 1, max_scale = 0x1p126;
};
// layerwise_dynamic: settings of one layer.
struct LayerwiseSettings {
  double init_scale = 65536, growth_factor = 2, backoff_factor = 0.5;
  std::int64_t growth_interval = 10000;
  double min_scale = 0x1p-126, max_scale = 0x1p126;
};
using LayerwiseLookup = std::function<LayerwiseSettings(const std::string& layer)>;

std::unique_ptr<Policy> MakeNone(double init_scale);
std::unique_ptr<Policy> MakeFixed(double scale);
std::unique_ptr<Policy> MakeDynamic(const DynamicParameters& parameters);
std::unique_ptr<Policy> MakeAdaptive(double init_scale, AdaptiveLookup lookup);
std::unique_ptr<Policy> MakeLayerwiseDynamic(double init_scale, LayerwiseLookup lookup);
std::unique_ptr<Policy> MakeLogMax(const LogMaxParameters& parameters);
std::unique_ptr<Policy> MakeHistogram(const HistogramParameters& parameters);

}  // namespace ada::scaling
