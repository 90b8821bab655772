#include "optim/schedule.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace ada::optim {
namespace {

double Multistep(const Schedule& schedule, double lr, std::int64_t finished_epochs) {
  for (const int milestone : schedule.milestones) {
    if (milestone <= finished_epochs) lr *= schedule.gamma;
  }
  return lr;
}

}  // namespace

bool MovesEachStep(const Schedule& schedule) {
  return schedule.kind != Schedule::Kind::kConstant && schedule.kind != Schedule::Kind::kMultistep;
}

double LearningRate(const Schedule& schedule, double lr, std::int64_t step,
                    std::int64_t steps_per_epoch, std::int64_t total_steps) {
  ADA_CHECK(step >= 0 && steps_per_epoch > 0 && total_steps > 0);
  if (step < std::llround(schedule.warmup.epochs * static_cast<double>(steps_per_epoch))) {
    return schedule.warmup.lr;
  }
  const double progress =
      static_cast<double>(std::min(step, total_steps)) / static_cast<double>(total_steps);
  const double range = lr - schedule.min_lr;
  switch (schedule.kind) {
    case Schedule::Kind::kConstant:
      return lr;
    case Schedule::Kind::kMultistep:
      return Multistep(schedule, lr, step / steps_per_epoch);
    case Schedule::Kind::kCosine:
      return schedule.min_lr + range * (1 + std::cos(M_PI * progress)) / 2;
    case Schedule::Kind::kLinear:
      return schedule.min_lr + range * (1 - progress);
    case Schedule::Kind::kPoly:
      return schedule.min_lr + range * std::pow(1 - progress, schedule.power);
  }
  throw InternalError("LearningRate: unknown kind of schedule");
}

}  // namespace ada::optim
