// Learning rates as a pure function of the update step: no state, so a resume cannot lose any.
// Formulas as in torch.optim.lr_scheduler. Knows no configuration and no optimizer.
#pragma once
#include <cstdint>
#include <vector>

namespace ada::optim {

// The YAML's `schedule:`.
struct Schedule {
  enum class Kind {
    kConstant,
    kMultistep,
    kStep,
    kCosine,
    kCosineRestarts,
    kLinear,
    kPoly,
    kOneCycle
  } kind = Kind::kConstant;
  enum class Unit { kEpochs, kSteps } unit = Unit::kEpochs;  // of milestones, every, length, period
  enum class By { kStep, kEpoch } by = By::kStep;            // kEpoch: the rate holds for an epoch
  std::vector<int> milestones;  // units finished before the factor applies: [81] acts from the
                                // first step of epoch 82; they rise, and none is named twice
  double every = 0;             // step: units between two factors
  double gamma = 0.1;           // multistep, step: the factor
  double power = 1;             // poly
  double min_lr = 0;            // cosine, cosine_restarts, linear, poly: the rate at the end
  double length = 0;            // cosine, linear, poly, one_cycle: 0: `total_steps`
  // cosine, after its length: at min_lr, or back up and down again as torch's formula goes on.
  enum class Beyond { kHold, kClimb } beyond = Beyond::kHold;
  double period = 0;      // cosine_restarts: length of the first period (T_0)
  int period_factor = 1;  // of each period to the one before it (T_mult)
  struct OneCycle {
    double rise = 0.3;  // share of the length in which the rate climbs (pct_start)
    enum class Anneal { kCosine, kLinear } anneal = Anneal::kCosine;
    bool three_phase = false;  // down as long as up, then to the last rate
    double start_factor = 25;  // first rate: lr / start_factor (div_factor)
    double end_factor = 1e4;   // last rate: the first / end_factor (final_div_factor)
  } one_cycle;
  struct Warmup {
    enum class Kind { kConstant, kLinear, kNanoGpt, kHuggingFace, kLlmC } kind = Kind::kConstant;
    double epochs = 0;  // may be fractional: rounded to the nearest step
    std::int64_t steps = 0;
    double lr = 0;       // constant, linear
    bool counts = true;  // constant, linear: its steps count for the schedule, which else begins
                         // after it
    bool by_name() const { return kind != Kind::kConstant && kind != Kind::kLinear; }
  } warmup;
};
// Whether the rate of this step may differ from the last one's without a milestone between them.
bool MovesEachStep(const Schedule& schedule, std::int64_t step, std::int64_t steps_per_epoch);

// The rate of update step `step` (from 0) of a run of `total_steps`, where the optimizer's is `lr`.
// With t = step in units, L = length (else total_steps), p = t / L (at most 1), r = lr - min_lr:
//   constant lr; multistep lr * gamma^(milestones <= t); step lr * gamma^floor(t / every);
//   cosine min_lr + r * (1 + cos(pi p)) / 2; linear min_lr + r * (1 - p);
//   poly min_lr + r * (1 - p)^power; cosine_restarts: cosine over each period, p from 0 again;
//   one_cycle: OneCycleLR from lr / start_factor up to lr at step rise * L - 1 and down to
//   lr / start_factor / end_factor at step L - 1, which holds from then on.
// During a warm-up of W steps the rate is `warmup.lr` (constant), or runs to lr in a straight line:
// (warmup.lr + (lr - warmup.lr) * step / W) times what the schedule has made of lr. Where warm-up
// steps do not count, the schedule's step 0 is step W, and L is what is left of the run.
// Warm-ups as other programs have them, whose steps never count for the schedule: nanogpt
// lr * (step + 1) / (W + 1) (karpathy/nanoGPT, train.py get_lr); huggingface lr * step / W
// (transformers, optimization.py); llmc lr * (step + 1) / W (karpathy/llm.c, llmc/schedulers.h).
// by epoch: the rate of the epoch's first step. steps_per_epoch and total_steps are positive, step
// is not negative.
double LearningRate(const Schedule& schedule, double lr, std::int64_t step,
                    std::int64_t steps_per_epoch, std::int64_t total_steps);

}  // namespace ada::optim
