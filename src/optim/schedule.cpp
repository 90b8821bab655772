// The formulas of schedule.h.
#include "optim/schedule.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace ada::optim {
namespace {

double Multistep(const ScheduleSpec& spec, std::int64_t finished_epochs) {
  double lr = spec.lr;
  for (const int milestone : spec.milestones) {
    if (milestone <= finished_epochs) lr *= spec.gamma;
  }
  return lr;
}

}  // namespace

double LearningRate(const ScheduleSpec& spec, std::int64_t step, std::int64_t steps_per_epoch,
                    std::int64_t total_steps) {
  ADA_CHECK(step >= 0 && steps_per_epoch > 0 && total_steps > 0);
  if (step < std::llround(spec.warmup_epochs * static_cast<double>(steps_per_epoch))) {
    return spec.warmup_lr;
  }
  const double progress =
      static_cast<double>(std::min(step, total_steps)) / static_cast<double>(total_steps);
  const double range = spec.lr - spec.min_lr;
  switch (spec.kind) {
    case ScheduleSpec::Kind::kConstant:
      return spec.lr;
    case ScheduleSpec::Kind::kMultistep:
      return Multistep(spec, step / steps_per_epoch);
    case ScheduleSpec::Kind::kCosine:
      return spec.min_lr + range * (1 + std::cos(M_PI * progress)) / 2;
    case ScheduleSpec::Kind::kLinear:
      return spec.min_lr + range * (1 - progress);
    case ScheduleSpec::Kind::kPoly:
      return spec.min_lr + range * std::pow(1 - progress, spec.power);
  }
  throw InternalError("LearningRate: unknown kind of schedule");
}

}  // namespace ada::optim
