// Computes the learning rate of a step for each kind of schedule: warmup first, then the kind's own
// formula.
#include "optim/schedule.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "error.h"

namespace ada::optim {
namespace {

using ScheduleKind = Schedule::Kind;

// What a schedule knows of a step: all in steps.
struct Place {
  double step = 0, unit = 1, length = 1;
  double units() const { return step / unit; }
};

struct Phase {
  double end, from, to;  // its last step and the rates at its ends
};

double Between(const Phase& phase, double share, Schedule::OneCycle::Anneal anneal) {
  if (anneal == Schedule::OneCycle::Anneal::kLinear)
    return phase.from + (phase.to - phase.from) * share;
  return phase.to + (phase.from - phase.to) / 2 * (1 + std::cos(M_PI * share));
}

// The shape of one_cycle is that of Smith and Topin (2018) as torch's OneCycleLR has it: the rate
// of step `step` (from 0; any number) of a cycle of `length` steps, at most `lr`.
double OneCycleRate(const Schedule::OneCycle& shape, double lr, double step, double length) {
  const double first = lr / shape.start_factor, last = first / shape.end_factor;
  const double top = shape.rise * length - 1, end = length - 1;
  const std::array<Phase, 3> phases =
      shape.three_phase
          ? std::array<Phase, 3>{{{top, first, lr}, {2 * top, lr, first}, {end, first, last}}}
          : std::array<Phase, 3>{{{top, first, lr}, {end, lr, last}, {end, last, last}}};
  double begin = 0;
  for (const Phase& phase : phases) {
    if (step <= phase.end) {
      const double steps = phase.end - begin;
      return Between(phase, steps > 0 ? (step - begin) / steps : 1, shape.anneal);
    }
    begin = phase.end;
  }
  return last;
}

double Multistep(const Schedule& schedule, double lr, double units) {
  for (const int milestone : schedule.milestones) {
    if (milestone <= units) lr *= schedule.gamma;
  }
  return lr;
}

double Cosine(const Schedule& schedule, double lr, double progress) {
  return schedule.min_lr + (lr - schedule.min_lr) * (1 + std::cos(M_PI * progress)) / 2;
}

// So many units in steps. 0.28 epochs of 50 steps are 14 steps, and a little more in doubles.
double StepsOf(double units, const Place& place) {
  constexpr double kSlack = 1e-9;
  const double steps = units * place.unit, whole = std::round(steps);
  return std::fabs(steps - whole) <= kSlack * whole ? whole : steps;
}

// Where in its period a step lies, as a share of that period.
double PeriodProgress(const Schedule& schedule, const Place& place) {
  double step = place.step, period = StepsOf(schedule.period, place);
  if (schedule.period_factor == 1) return (step - std::floor(step / period) * period) / period;
  while (step >= period) step -= period, period *= schedule.period_factor;
  return step / period;
}

double RateAt(const Schedule& schedule, double lr, const Place& place) {
  const double range = lr - schedule.min_lr;
  const double endless = place.step / place.length, progress = std::min(endless, 1.0);
  switch (schedule.kind) {
    case ScheduleKind::kConstant:
      return lr;
    case ScheduleKind::kMultistep:
      return Multistep(schedule, lr, place.units());
    case ScheduleKind::kStep:
      return lr * std::pow(schedule.gamma, std::floor(place.step / StepsOf(schedule.every, place)));
    case ScheduleKind::kCosine:
      return Cosine(schedule, lr, schedule.beyond == Schedule::Beyond::kClimb ? endless : progress);
    case ScheduleKind::kCosineRestarts:
      return Cosine(schedule, lr, PeriodProgress(schedule, place));
    case ScheduleKind::kLinear:
      return schedule.min_lr + range * (1 - progress);
    case ScheduleKind::kPoly:
      return schedule.min_lr + range * std::pow(1 - progress, schedule.power);
    case ScheduleKind::kOneCycle:
      return OneCycleRate(schedule.one_cycle, lr, place.step, place.length);
  }
  throw InternalError("LearningRate: unknown kind of schedule");
}

std::int64_t WarmupSteps(const Schedule::Warmup& warmup, std::int64_t steps_per_epoch) {
  return warmup.steps + std::llround(warmup.epochs * static_cast<double>(steps_per_epoch));
}

// The share of the rate that a warm-up of another program has come to.
double NamedShare(Schedule::Warmup::Kind kind, double step, double warm) {
  switch (kind) {
    case Schedule::Warmup::Kind::kNanoGpt:
      return (step + 1) / (warm + 1);
    case Schedule::Warmup::Kind::kLlmC:
      return (step + 1) / warm;
    default:
      return step / warm;
  }
}

}  // namespace

bool MovesEachStep(const Schedule& schedule, std::int64_t step, std::int64_t steps_per_epoch) {
  if (schedule.by == Schedule::By::kEpoch) return false;
  const bool warms = step <= WarmupSteps(schedule.warmup, steps_per_epoch);
  if (warms && schedule.warmup.kind != Schedule::Warmup::Kind::kConstant) return true;
  return schedule.kind != ScheduleKind::kConstant && schedule.kind != ScheduleKind::kMultistep &&
         schedule.kind != ScheduleKind::kStep;
}

double LearningRate(const Schedule& schedule, double lr, std::int64_t step,
                    std::int64_t steps_per_epoch, std::int64_t total_steps) {
  ADA_CHECK(step >= 0 && steps_per_epoch > 0 && total_steps > 0);
  if (schedule.by == Schedule::By::kEpoch) step -= step % steps_per_epoch;
  const Schedule::Warmup& warmup = schedule.warmup;
  const std::int64_t warm = WarmupSteps(warmup, steps_per_epoch);
  const bool constant = warmup.kind == Schedule::Warmup::Kind::kConstant;
  if (step < warm && constant) return warmup.lr;

  if (step < warm && warmup.by_name())
    return lr * NamedShare(warmup.kind, static_cast<double>(step), static_cast<double>(warm));

  const std::int64_t before = warmup.counts && !warmup.by_name() ? 0 : warm;
  Place place;
  place.step = static_cast<double>(std::max<std::int64_t>(step - before, 0));
  if (schedule.unit == Schedule::Unit::kEpochs) place.unit = static_cast<double>(steps_per_epoch);
  place.length = schedule.length > 0
                     ? schedule.length * place.unit
                     : static_cast<double>(std::max<std::int64_t>(total_steps - before, 1));
  const double rate = RateAt(schedule, lr, place);
  if (step >= warm) return rate;
  const double share = static_cast<double>(step) / static_cast<double>(warm);
  const double begin = warmup.lr / lr;
  return (warmup.counts ? rate : lr) * (begin + (1 - begin) * share);
}

}  // namespace ada::optim
