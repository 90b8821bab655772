// Learning rates as a pure function of the update step: no state, so a resume cannot lose any.
// Formulas as in torch.optim.lr_scheduler. Knows no configuration and no optimizer.
#pragma once
#include <cstdint>
#include <vector>

namespace ada::optim {

// The YAML's `schedule:`.
struct Schedule {
  enum class Kind { kConstant, kMultistep, kCosine, kLinear, kPoly } kind = Kind::kConstant;
  std::vector<int> milestones;  // epochs finished before the factor applies: [81] acts from the
                                // first step of epoch 82; a milestone named twice acts twice
  double gamma = 0.1;           // multistep: the factor of each milestone
  double power = 1;             // poly
  double min_lr = 0;            // cosine, linear, poly: the rate that `total_steps` would have
  struct Warmup {
    double epochs = 0;  // may be fractional: rounded to the nearest step
    double lr = 0;
  } warmup;
};
// Whether the rate changes within an epoch as well.
bool MovesEachStep(const Schedule& schedule);

// The rate of update step `step` (from 0) of a run of `total_steps`, where the optimizer's is `lr`.
// With p = step / total_steps (at most 1) and r = lr - min_lr:
//   constant lr; multistep lr * gamma^(milestones <= step / steps_per_epoch, whole epochs);
//   cosine min_lr + r * (1 + cos(pi p)) / 2; linear min_lr + r * (1 - p); poly min_lr + r * (1 -
//   p)^power.
// During warm-up the rate is `warmup.lr`; afterwards the schedule is where it would be without one
// (warm-up steps count). steps_per_epoch and total_steps are positive, step is not negative.
double LearningRate(const Schedule& schedule, double lr, std::int64_t step,
                    std::int64_t steps_per_epoch, std::int64_t total_steps);

}  // namespace ada::optim
