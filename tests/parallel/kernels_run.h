// Trains as train::Train does, on the kernels of the CUDA backend, which the host executor runs:
// each rank, a thread, has a device of its own.
#pragma once
#include <filesystem>
#include <memory>

#include "backend/cuda/cuda_backend.h"
#include "config/load.h"
#include "telemetry/log.h"
#include "train/assemble/assemble.h"
#include "train/distributed/consistency_check.h"
#include "train/distributed/team.h"
#include "train/run.h"
#include "train/session.h"

namespace ada::testing {

inline void TrainOnKernels(config::Config config, const train::RunOptions& options,
                           telemetry::Log& log) {
  train::Team team(*options.world, config.parallel);
  config.parallel.ranks = team.ranks_to_keep();
  config = train::Completed(config, train::InspectData(config));
  const auto backend = backend::MakeHostExecutedBackend({}, team.communicators());
  const train::RunData data = train::ReadData(config);
  const auto policy = scaling::MakePolicy(config.scaling);
  graph::GraphSpec spec = train::TrainGraph(config, data.image, *policy);
  spec.input.n = static_cast<int>(team.LargestShare(spec.input.n));
  const auto graph = graph::Graph::Build(spec, *backend);
  std::filesystem::create_directories(config.output);
  const auto from = options.resume
                        ? train::FindResumePoint(config.output + "/checkpoints", config, log)
                        : std::optional<train::ResumePoint>();
  const train::SignalWatch signals;
  train::Session session({config, config, signals, config.output, *backend, data, *graph, *policy,
                          log, false, 1, team},
                         from);
  if (session.distributed().are_parts()) train::CheckConsistency(data, *graph, *backend, team);
  if (team.writes()) session.OpenLogs();
  if (session.Run() != 0) throw InternalError("a run that did not end well");
}

}  // namespace ada::testing
