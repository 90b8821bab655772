// The update: what turns weight gradients into new masters, and what of it is decided where the
// gradients are.
#pragma once
#include <cmath>
#include <cstdint>

#include "core/stats.h"
#include "core/tensor.h"

namespace ada::backend {

// One parameter as the optimizer sees it. State tensors are fp32 of the same shape.
struct UpdateSlot {
  Tensor value, gradient, state1, state2;
  bool decay = true;
  void Visit(auto&& visit) { visit(value, gradient, state1, state2); }
};
struct UpdateRule {
  enum class Kind { kSgd, kAdam, kAdamW } kind = Kind::kSgd;
  double momentum = 0, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0;
  bool nesterov = false;
};
struct UpdateStep {
  double lr = 0;
  double gradient_factor = 1;  // clipping; filled in by the op
  std::int64_t count = 1;      // updates made, this one included (Adam's bias correction)
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
  virtual void Update(const UpdatePlan& plan) = 0;
  virtual UpdateOutcome Outcome() = 0;  // of the last Update; waits for it
};

}  // namespace ada::backend
