// The parts of a fork: finding layers by name, perturbing weights, reasons for not training.
#pragma once
#include <cstdint>
#include <string>

#include "graph/graph.h"
#include "run/fork/fork_spec.h"
#include "step/attempt/attempt.h"
#include "telemetry/not_finite.h"

namespace ada::run {

// Perturbs the masters of a twin (ForkSpec::twin), which must be rounded to their format before.
void MoveWeights(const ForkSpec& spec, graph::Graph& graph, backend::Backend& backend);

// Returns ForkResult::trouble. last: the last step that was made; skips: how many made no update.
std::string TroubleOf(const ForkSpec& spec, const ForkResult& result, const step::StepResult& last,
                      std::int64_t skips, const telemetry::Finiteness& finiteness);

}  // namespace ada::run
