// The rates command.
#include <algorithm>
#include <ostream>

#include "io/text.h"
#include "optim/schedule.h"
#include "run/assemble/assemble.h"
#include "run/plan/plan_reports.h"
#include "step/specs.h"

namespace ada::run {

void PrintRates(const config::Config& config, std::int64_t steps_per_epoch, std::int64_t every,
                std::ostream& out) {
  const std::int64_t per_epoch = steps_per_epoch > 0
                                     ? steps_per_epoch
                                     : step::StepsPerEpoch(config, InspectData(config).train);
  const std::int64_t total = step::TotalSteps(config, per_epoch);
  out << "step,epoch,lr\n";
  std::int64_t step = 0;
  // A closed pipe ends the loop: a long run has millions of steps.
  while (out) {
    const double lr =
        optim::LearningRate(config.schedule, config.optimizer.lr, step, per_epoch, total);
    out << step + 1 << ',' << step / per_epoch + 1 << ',' << ShortestText(lr) << '\n';
    if (step + 1 == total) return;
    step += std::min(every, total - 1 - step);
  }
}

}  // namespace ada::run
