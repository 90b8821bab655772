// The update: what turns weight gradients into new masters, and what of it is decided where the
// gradients are.
#pragma once
#include <cmath>
#include <cstdint>
#include <vector>

#include "core/stats.h"
#include "core/tensor.h"

namespace ada::backend {

// One parameter as the optimizer sees it. State tensors are fp32 of the same shape.
struct UpdateSlot {
  Tensor value, gradient, state1, state2;
  double decay = 1, lr = 1;  // factors of the rule's weight decay and of the step's rate
  std::uint64_t stream = 0;  // tells parameters apart in stochastic rounding
  void Visit(auto&& visit) { visit(value, gradient, state1, state2); }
};
// The format of what an update keeps: its values lie in fp32 storage.
struct KeptFormat {
  NumberFormat format = kFp32;
  bool stochastic = false;
};
struct UpdateRule {
  enum class Kind { kSgd, kAdam, kAdamW } kind = Kind::kSgd;
  double momentum = 0, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0;
  double dampening = 0;  // share of a gradient that the momentum leaves out, but for the first
  bool nesterov = false;
  // What the momentum gathers: gradients, which are multiplied by the rate of the moment (torch),
  // or steps, each made with the rate of its own time (Chainer, Caffe, Keras).
  enum class Velocity { kGradients, kSteps } velocity = Velocity::kGradients;
  KeptFormat masters, state;
};
struct UpdateStep {
  double lr = 0;
  double gradient_factor = 1;  // clipping; filled in by the op
  std::int64_t count = 1;      // updates made, this one included (Adam's bias correction)
  std::uint64_t seed = 0;      // of stochastic rounding, whose numbers `count` tells apart
};
// What is to become of gradients, as far as that is known before they are: the rest the op decides
// itself, without the host.
struct UpdatePlan {
  UpdateStep step;
  double clip_norm = 0;  // > 0: gradients are multiplied by ClipFactor(norm, clip_norm)
  // Where a gradient is not finite: kSkip: nothing changes; kSanitize: NaN become 0, magnitudes
  // above `sanitize_to` (inf too) become it with their sign, then the norm is taken anew for
  // clipping, and the update takes place.
  enum class OnOverflow : std::uint8_t { kSkip, kSanitize } on_overflow = OnOverflow::kSkip;
  float sanitize_to = 0;
  bool largest = false;  // UpdateOutcome::largest is wanted
  bool count = false;    // UpdateOp::Stats is wanted
  // Tells plans apart whose updates are other work, and not the same with other numbers.
  static constexpr std::uint64_t kKinds = 4;
  std::uint64_t kind() const {
    return (on_overflow == OnOverflow::kSanitize ? 1u : 0u) + (count ? 2u : 0u);
  }
};
// A rounding that counts like a gradient: where it left its format, nothing is updated.
struct WatchedRounding {
  const TensorStats* stats = nullptr;
  float most = INFINITY;  // magnitudes above it, and NaN, are what counts
  void Visit(auto&& visit) { visit(stats); }
};
struct UpdateOutcome {
  double norm = 0;        // global L2 norm of all gradients as they came, in double
  float largest = 0;      // their largest magnitude; inf or NaN where one is (NaN first)
  bool overflow = false;  // one is not finite; then the norm is not either
  bool watched = false;   // a watched rounding left its format
  bool updated = false;
  bool clipped = false;  // gradients were multiplied by less than 1
};
class UpdateOp {
 public:
  virtual ~UpdateOp() = default;
  // Looks at the watched roundings of the backward pass that was asked for last. All looks since
  // the last Update count for the next.
  virtual void Look() = 0;
  // What the next Update does. Outside of Backend::Run, within which Look and Update may be called:
  // then an update that is replayed goes by the plan that was made last.
  virtual void Plan(const UpdatePlan& plan) = 0;
  virtual void Update() = 0;
  void Update(const UpdatePlan& plan) {
    Plan(plan);
    Update();
  }
  virtual UpdateOutcome Outcome() = 0;  // of the last Update; waits for it
  // After Outcome of an Update whose plan counts (update_rounding.h): of each slot its changes,
  // then what is kept of master, state1 and state2. Where nothing was updated, and otherwise: none.
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
