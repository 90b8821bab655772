// The search for a checkpoint to go on from.
#include "config/load.h"
#include "core/error.h"
#include "train/checkpoint/checkpoint.h"

namespace ada::train {
namespace {

void CheckConfig(const CheckpointState& state, const std::string& stem,
                 const config::Config& config) {
  config::Config stored = config::LoadText(state.config, stem + ".json (config)", {}).config;
  config::FillDefaults(stored);
  const std::vector<std::string> conflicts = config::ResumeConflicts(stored, config);
  if (conflicts.empty()) return;
  std::string message =
      "--resume: the configuration differs from the run's in what may not change:";
  for (const std::string& line : conflicts) message += "\n  " + line;
  throw ConfigError(message +
                    "\nput the old values back, or start another run with --name or --output");
}

}  // namespace

std::optional<ResumePoint> FindResumePoint(const std::string& folder, const config::Config& config,
                                           telemetry::Log& log) {
  for (const std::int64_t step : ListCheckpoints(folder)) {
    const std::string stem = CheckpointStem(folder, step);
    try {
      ResumePoint point{stem, ReadCheckpointState(stem)};
      CheckConfig(point.state, stem, config);
      return point;
    } catch (const DataError& e) {
      log.Warning(std::string(e.what()) + "; trying the one before it");
    }
  }
  return std::nullopt;
}

}  // namespace ada::train
