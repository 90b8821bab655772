// Trains as run::Train does, on the kernels of the CUDA backend, which the host executor runs:
// each rank, a thread, has a device of its own.
#pragma once
#include <filesystem>
#include <memory>

#include "backend/cuda/cuda_backend.h"
#include "config/load.h"
#include "run/assemble/assemble.h"
#include "run/run.h"
#include "run/session.h"
#include "step/specs.h"
#include "step/team.h"
#include "telemetry/log.h"

namespace ada::testing {

inline void TrainOnKernels(config::Config config, const run::RunOptions& options,
                           telemetry::Log& log) {
  step::Team team(*options.world, config.parallel);
  config.parallel.ranks = team.ranks_to_keep();
  config = run::Completed(config, run::InspectData(config));
  const auto backend = backend::MakeHostExecutedBackend({}, team.communicators());
  const run::RunData data = run::ReadData(config);
  const auto policy = scaling::MakePolicy(config.scaling);
  graph::GraphSpec spec = step::TrainGraph(config, data.image, *policy);
  spec.input.n = static_cast<int>(team.LargestShare(spec.input.n));
  const auto graph = graph::Graph::Build(spec, *backend);
  std::filesystem::create_directories(config.output);
  const auto from = options.resume
                        ? run::FindResumePoint(config.output + "/checkpoints", config, log)
                        : std::optional<run::ResumePoint>();
  const run::SignalWatch signals;
  run::Session session({config, data, log, signals, config.output, "ada-train", false, team},
                       {config, *backend, *graph, *policy, 1}, std::nullopt, from);
  if (session.distributed().are_parts()) run::CheckConsistency(data, *graph, *backend, team);
  if (team.writes()) session.OpenLogs();
  if (session.Run() != 0) throw InternalError("a run that did not end well");
}

}  // namespace ada::testing
