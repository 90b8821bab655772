// Checks before the first step that the processes of a run agree on what they are about to compute.
#pragma once
#include <cstdint>

#include "config/config.h"
#include "graph/graph.h"
#include "run/assemble/assemble.h"
#include "step/team.h"

namespace ada::run {

// Collective. Throws, in all processes, an error that names the first process that differs from
// rank 0, and what differs: ConfigError (configuration, except for places of files and threads,
// which may differ), DataError (images, labels, the checkpoint to resume from, weights),
// DeviceError (program, instruction set).
void CheckConfigConsistency(const config::Config& config, step::Team& team);
// step: of the checkpoint that a resumed run goes on from, -1 without one. Called before anything
// depends on it. done: the run is finished.
void CheckContinuation(std::int64_t step, bool done, step::Team& team);
void CheckConsistency(const RunData& data, const graph::Graph& graph, backend::Backend& backend,
                      step::Team& team);

}  // namespace ada::run
