// Decides by the keys log.every, log.histogram_every and their like whether a step is due.
#include "io/text.h"
#include "step/step_observer.h"

namespace ada::step {

bool IsDue(std::int64_t every, std::int64_t step) {
  return every > 0 && (step == 1 || step % every == 0);
}

bool LogSchedule::Logs(std::int64_t step) const {
  const config::LogConfig& log = config_.log;
  return IsDue(log.every, step) || IsDue(log.probe_every, step) || IsDue(log.dump_every, step) ||
         TakesHistograms(step);
}

bool LogSchedule::Counts(std::int64_t step) const {
  return Logs(step) && !config_.log.statistics.empty();
}

bool LogSchedule::TakesHistograms(std::int64_t step) const {
  return IsDue(config_.log.histogram_every.value_or(0), step);
}

bool LogSchedule::CountsUpdates(std::int64_t step) const {
  const config::PrecisionConfig& p = config_.precision;
  const bool kept_short = p.masters.format != kFp32 || !p.optimizer_state.plain();
  const bool muon = config_.optimizer.kind == backend::UpdateRule::Kind::kMuon;
  return Logs(step) && (kept_short || muon || Contains(config_.log.statistics, "update"));
}

}  // namespace ada::step
