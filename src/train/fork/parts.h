// The parts of a fork: its layers by name, its moved weights, what keeps it from training.
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
// A parameter is named LAYER.NAME, or as its layer where that has no other.
std::string LayerOf(const std::string& parameter, const std::set<std::string>& layers);

// Moves the masters of a twin; before that they are rounded in their format.
void MoveWeights(const ForkSpec& spec, graph::Graph& graph, backend::Backend& backend);

// Returns ForkResult::trouble. last: the last step that was made; skips: how many made no update.
std::string TroubleOf(const ForkSpec& spec, const ForkResult& result, const StepResult& last,
                      std::int64_t skips, const telemetry::Finiteness& finiteness);

}  // namespace ada::train
