// Policies: they decide the scale of the logit gradient from attempt to attempt, the rule of each
// layer, and what happens to an attempt whose gradients are not finite. They handle only numbers:
// no tensors, no backend, no clock. Training and `ada-train replay` drive the same objects.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "scaling/rules/rules.h"
#include "scaling/rules/state_text.h"

namespace ada::scaling {

// Properties of a layer, known from shapes and formats; the same in training and replay.
struct LayerInfo {
  std::string name;
  double fan_reference = 1;     // out_features, or out_channels * kh * kw
  double fan_exact = 1;         // the same divided by stride_h * stride_w * groups
  double u_min = 0, u_max = 0;  // of the format of the layer's dx
  bool has_weight = true;       // true: a batch norm too; false: a cast (`kind: scale`)
  bool fp16_gradients = false;  // the layer's dy is stored in fp16
};

// The statistics of the next attempt that a policy needs in addition to `overflow`.
struct StatsRequest {
  bool amax = false;    // StepOutcome::amax
  bool layers = false;  // StepOutcome::layer_overflow
  double edge = 0;  // StepOutcome::above counts magnitudes above edge * largest value; 0: do not
};

// How an attempt ended.
struct StepOutcome {
  bool overflow = false;              // some weight gradient is not finite
  double amax = 0;                    // largest |unscaled weight gradient|; inf, NaN allowed
  std::int64_t above = 0, below = 0;  // values of all rounded dx above the edge, and not above it
  std::map<std::string, bool> layer_overflow;  // by name of each layer given to RuleFor
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
  std::string error;             // if not empty: the policy ends the run, as the original would
};

// Why a scale of 0 or inf never changes again, whatever the policy; "" for other scales.
std::string WhyForGood(double scale);
// A suffix for reasons: "; it is 0 now for good, since any factor leaves it 0".
std::string StaysForGood(double scale);

// One object for a run, made by MakePolicy and called by one thread. Order of calls: RuleFor for
// each layer; Start if AwaitsStart, or LoadState; then for each attempt Scale, LayerScale,
// RequiredStats and OnOverflow, and after it Update. Two objects that get the same calls are in the
// same state: each process of a run has its own.
class Policy {
 public:
  virtual ~Policy() = default;
  virtual std::string_view name() const = 0;  // as in the YAML
  // S of the logit gradient in this attempt, exact in the original's type (fp32 or double).
  virtual double Scale() const = 0;
  // The rule of one layer that computes a dx. Called once for each layer, in forward order, before
  // the first attempt.
  virtual LayerRule RuleFor(const LayerInfo& layer) = 0;
  // layerwise_dynamic: the layer's own S in this attempt. Others: 1.
  virtual double LayerScale(const std::string& /*layer*/) const { return 1; }
  virtual StatsRequest RequiredStats() const { return {}; }
  // What Update will do if the next attempt overflows; known beforehand, so that a device can act
  // without asking the host. If the attempt does not overflow, Update updates, except with
  // StatsRequest::layers if a layer's own gradients overflow: then it skips.
  virtual Action OnOverflow() const { return Action::kSkip; }
  virtual ScaleUpdate Update(const StepOutcome& attempt) = 0;
  // Whether a fresh run must call Start with its first S (init_scale: auto).
  virtual bool AwaitsStart() const { return false; }
  // To be called before the first attempt, after RuleFor for all layers.
  virtual void Start(double /*scale*/) {}
  virtual StateMap SaveState() const = 0;
  virtual void LoadState(const StateMap& state) = 0;  // throws DataError on unknown or missing keys

  // Whether Scale is the same in every attempt of the run.
  virtual bool ConstantScale() const { return false; }
  // Whether it decides a scale for each layer, so that no other scale of gradients may be used.
  virtual bool OwnsLayerScales() const { return false; }
  // Whether batch norms choose a scale too: then RuleFor is called for each that computes a dx.
  virtual bool ScalesBatchNorms() const { return false; }
  // Whether the gradients within attention do: then RuleFor is called for each, as LAYER.ds.
  virtual bool ScalesAttention() const { return true; }
  // Whether layers and branches compute their scales exactly as the authors' program does.
  virtual bool FollowsReference() const { return false; }
  // Whether the gradients that meet at this layer's output are converted to one scale before they
  // are summed; false only if FollowsReference is true.
  virtual bool RescalesBranches(const std::string& /*layer*/) const { return true; }
  // Whether RequiredStats ever asks for an edge: then all dx need counts.
  virtual bool CountsAboveEdge() const { return false; }
};

// The rule of layers under policies with one global scale: alpha is 1, the layer passes S on.
inline LayerRule PassRule(const LayerInfo& layer) {
  LayerRule rule;
  rule.u_min = layer.u_min;
  rule.u_max = layer.u_max;
  rule.has_weight = layer.has_weight;
  return rule;
}

// What a training step does after an attempt that the policy skips: it gives the step up, or
// retries the same update with the next batch (NNabla). Counts steps and attempts for both training
// and replay.
class RetryRule {
 public:
  // max_retries 0: never retry.
  explicit RetryRule(std::int64_t max_retries) : max_retries_(max_retries) {}
  // Records how an attempt ended; true: the next attempt belongs to the same step.
  bool Next(bool skipped) {
    const bool retry = skipped && retries_ < max_retries_;
    retries_ = retry ? retries_ + 1 : 0;
    return retry;
  }
  std::int64_t retries() const { return retries_; }  // of the current step so far
  void Restore(std::int64_t retries) { retries_ = retries; }

 private:
  std::int64_t max_retries_, retries_ = 0;
};

}  // namespace ada::scaling
