// The parts of a fork: finding layers by name, perturbing weights, reasons for not training.
#pragma once
#include <cstdint>
#include <set>
#include <string>

#include "graph/graph.h"
#include "telemetry/not_finite.h"
#include "train/attempt/attempt.h"
#include "train/fork/fork.h"

namespace ada::train {

std::set<std::string> NamesOf(const graph::Graph& graph);
// Returns the layer of a parameter, which is named LAYER.NAME, or like its layer.
std::string LayerOf(const std::string& parameter, const std::set<std::string>& layers);

// Perturbs the masters of a twin (ForkSpec::twin), which must be rounded to their format before.
void MoveWeights(const ForkSpec& spec, graph::Graph& graph, backend::Backend& backend);

// Returns ForkResult::trouble. last: the last step that was made; skips: how many made no update.
std::string TroubleOf(const ForkSpec& spec, const ForkResult& result, const StepResult& last,
                      std::int64_t skips, const telemetry::Finiteness& finiteness);

}  // namespace ada::train
