// Where the weights of an evaluation come from: a checkpoint, or a safetensors file that holds only
// weights and has no JSON file next to it.
#pragma once
#include <optional>
#include <string>

#include "backend/backend.h"
#include "graph/graph.h"
#include "telemetry/log.h"
#include "train/checkpoint/checkpoint.h"

namespace ada::train {

// Puts the tensors of `path` where they belong (average: of a checkpoint those of the moving
// average); of weights alone those that the network does not
// have are warned of. DataError where the network has more, others, or scales of tensors that only
// a checkpoint knows.
void LoadEvaluatedWeights(const std::string& path, bool average, graph::Graph& graph,
                          backend::Backend& backend, telemetry::Log& log);

// What a checkpoint holds besides tensors; empty: the file holds only weights. DataError.
std::optional<CheckpointState> StateOfCheckpoint(const std::string& path);

}  // namespace ada::train
