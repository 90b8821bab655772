// The update, which computes new masters from weight gradients, and its decisions, which are made
// on the device where the gradients are.
#pragma once
#include <cmath>
#include <cstdint>
#include <vector>

#include "number/stats.h"
#include "number/tensor.h"

namespace ada::backend {

// One parameter as the optimizer sees it. State tensors are fp32 of the same shape.
struct UpdateSlot {
  Tensor value, gradient, state1, state2;
  double decay = 1, lr = 1;  // factors of the rule's weight decay and of the step's rate
  std::uint64_t stream = 0;  // distinguishes parameters in stochastic rounding
  void Visit(auto&& visit) { visit(value, gradient, state1, state2); }
};
// The format in which an update stores its results; they are stored in fp32 memory.
struct KeptFormat {
  NumberFormat format = kFp32;
  bool stochastic = false;
};
struct UpdateRule {
  enum class Kind { kSgd, kAdam, kAdamW } kind = Kind::kSgd;
  double momentum = 0, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0;
  double dampening = 0;  // share of each gradient that the momentum omits, except the first
  bool nesterov = false;
  // What the momentum accumulates: gradients, multiplied by the current learning rate (torch), or
  // steps, each computed with the learning rate of its own time (Chainer, Caffe, Keras).
  enum class Velocity { kGradients, kSteps } velocity = Velocity::kGradients;
  KeptFormat masters, state;
};
struct UpdateStep {
  double lr = 0;
  double gradient_factor = 1;  // clipping; filled in by the op
  std::int64_t count = 1;      // updates including this one (Adam's bias correction)
  std::uint64_t seed = 0;      // of stochastic rounding, whose numbers `count` tells apart
};
// What is to happen to gradients, as far as it is known before they are; the op decides the rest
// itself, without the host.
struct UpdatePlan {
  UpdateStep step;
  double clip_norm = 0;  // > 0: gradients are multiplied by ClipFactor(norm, clip_norm)
  // If a gradient is not finite: kSkip: nothing changes; kSanitize: NaN become 0, magnitudes above
  // `sanitize_to` (also inf) become that value with their sign, then the norm for clipping is
  // computed again, and the update takes place.
  enum class OnOverflow : std::uint8_t { kSkip, kSanitize } on_overflow = OnOverflow::kSkip;
  float sanitize_to = 0;
  bool largest = false;  // UpdateOutcome::largest is wanted
  bool count = false;    // UpdateOp::Stats is wanted
  // Distinguishes plans whose updates run different code; different numbers do not count.
  static constexpr std::uint64_t kKinds = 4;
  std::uint64_t kind() const {
    return (on_overflow == OnOverflow::kSanitize ? 1u : 0u) + (count ? 2u : 0u);
  }
};
// A rounding that is checked like a gradient: if it overflowed its format, nothing is updated.
struct WatchedRounding {
  const TensorStats* stats = nullptr;
  float most = INFINITY;  // magnitudes above this, and NaN, are overflow
  void Visit(auto&& visit) { visit(stats); }
};
struct UpdateOutcome {
  double norm = 0;        // global L2 norm of all gradients before clipping, in double
  float largest = 0;      // their largest magnitude; inf or NaN if there is one (NaN wins)
  bool overflow = false;  // one is not finite; then the norm is not either
  bool watched = false;   // a watched rounding overflowed its format
  bool updated = false;
  bool clipped = false;  // gradients were multiplied by less than 1
};
class UpdateOp {
 public:
  virtual ~UpdateOp() = default;
  // Checks the watched roundings of the last backward pass. The next Update uses the result of all
  // calls since the last Update.
  virtual void CheckWatched() = 0;
  // Sets what the next Update does. To be called outside of Backend::Run, within which CheckWatched
  // and Update may be called: a replayed update uses the latest plan.
  virtual void Plan(const UpdatePlan& plan) = 0;
  virtual void Update() = 0;
  void Update(const UpdatePlan& plan) {
    Plan(plan);
    Update();
  }
  virtual UpdateOutcome Outcome() = 0;  // of the last Update; waits for it
  // After Outcome of an Update whose plan counts (update_rounding.h): for each slot its changes,
  // then the stored values of master, state1 and state2. Empty if nothing was updated or counted.
  virtual std::vector<TensorStats> Stats() const { return {}; }
};

// A running average of a tensor: average += (1 - keep) * (value - average). Both fp32, of one
// shape.
struct AverageSlot {
  Tensor value, average;
  void Visit(auto&& visit) { visit(value, average); }
};
class AverageOp {
 public:
  virtual ~AverageOp() = default;
  virtual void Step(double keep) = 0;  // keep 0: the averages become the values
};

}  // namespace ada::backend
