// Which checkpoint a run goes on from, and its state back into the parts of a training.
#include "config/load.h"
#include "error.h"
#include "run/checkpoint/checkpoint.h"
#include "scaling/rules/state_text.h"

namespace ada::run {

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

std::string OfProcess(const std::string& layer, int rank) {
  return layer + "@" + std::to_string(rank);
}

void RestoreParts(const ResumePoint& from, int rank, bool switched, graph::Graph& graph,
                  optim::Optimizer& optimizer, scaling::Policy& policy, backend::Backend& backend) {
  const CheckpointState& s = from.state;
  if (from.tensors)
    LoadCheckpointTensors(*from.tensors, graph, &optimizer, backend);
  else
    LoadCheckpointTensors(OpenCheckpointTensors(from.stem), graph, &optimizer, backend);
  LoadTensorScales(from.stem, s, graph, switched);
  optimizer.set_updates(s.updates);
  policy.LoadState(s.policy);
  for (const graph::ScalePoint& point : graph.scales()) {
    if (point.scaler == nullptr) continue;
    auto found = s.layers.find(point.layer);
    // A process that decides on its own has a state of its own; where the checkpoint has none,
    // since it was written by fewer processes or with common decisions, it begins with that of the
    // first.
    if (rank > 0) {
      const auto own = s.layers.find(OfProcess(point.layer, rank));
      if (own != s.layers.end()) found = own;
    }
    if (found == s.layers.end())
      throw DataError(from.stem + ".json: no state of layer " + point.layer +
                      "; this checkpoint cannot be used");
    // The checkpoint has no state_scale: it is the rule's, or the policy sends it.
    const float scale = point.scaler->state.state_scale;
    point.scaler->state = scaling::LoadLayerState(found->second, point.layer);
    point.scaler->state.state_scale = scale;
  }
  graph.SendLayerScalers();
}

}  // namespace ada::run
