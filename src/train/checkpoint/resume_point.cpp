// The search for a checkpoint to go on from.
#include "config/load.h"
#include "core/error.h"
#include "train/checkpoint/checkpoint.h"

namespace ada::train {
namespace {

// Switches that have not come yet may be changed.
config::Config WithoutLaterSwitches(config::Config config, std::int64_t step) {
  std::erase_if(config.precision.schedule,
                [step](const auto& change) { return change.from_step > step; });
  return config;
}

// Both configurations are compared in their resolved form. A conflict is the user's to solve, so it
// ends the search instead of making it look for an older checkpoint.
void CheckConfig(const CheckpointState& state, const std::string& stem,
                 const config::Config& config) {
  config::Config stored = config::LoadText(state.config, stem + ".json (config)", {}).config;
  config::FillDefaults(stored);
  const std::vector<std::string> conflicts = config::ResumeConflicts(
      WithoutLaterSwitches(stored, state.step), WithoutLaterSwitches(config, state.step));
  if (conflicts.empty()) return;
  std::string message =
      "--resume: the configuration differs from the run's in what may not change:";
  for (const std::string& line : conflicts) message += "\n  " + line;
  throw ConfigError(message +
                    "\nput the old values back, or start another run with --name or --output");
}

[[noreturn]] void NoneIsUsable(const std::string& folder, const std::string& problems) {
  throw DataError(folder + ": none of the checkpoints can be used:" + problems +
                  "\nThe run stays as it is. Put whole checkpoints back, or start again: "
                  "--overwrite deletes this run, its logs and checkpoints, first");
}

}  // namespace

// From the newest on; the first that is whole is taken.
std::optional<ResumePoint> FindResumePoint(const std::string& folder, const config::Config& config,
                                           telemetry::Log& log) {
  const CheckpointSteps steps = ListCheckpoints(folder);
  std::vector<std::string> damaged;
  for (const std::int64_t step : steps.paired) {
    const std::string stem = CheckpointStem(folder, step);
    try {
      ResumePoint point{stem, ReadCheckpointState(stem)};
      CheckConfig(point.state, stem, config);
      for (const std::string& problem : damaged) log.Warning(problem + "; one before it is taken");
      return point;
    } catch (const DataError& e) {
      damaged.emplace_back(e.what());
    }
  }
  // A kill within the first checkpoint leaves the tensors of one. More of them had JSON files.
  const bool several = steps.tensors_alone.size() > 1;
  if (damaged.empty() && !several) return std::nullopt;
  std::string problems;
  for (const std::string& problem : damaged) problems += "\n  " + problem;
  for (const std::int64_t step : steps.tensors_alone)
    problems += "\n  " + CheckpointStem(folder, step) + ".json: missing";
  NoneIsUsable(folder, problems);
}

}  // namespace ada::train
