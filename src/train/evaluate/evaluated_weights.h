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

// The tensors' file of a run's newest checkpoint, or of its best. DataError where there is none.
std::string CheckpointOfRun(const std::string& folder, bool best);

// The configuration that a checkpoint was written with, as YAML. DataError, also of weights alone.
std::string CheckpointConfig(const std::string& checkpoint);
// The step after which a checkpoint was written; of weights alone the last that there could be, of
// an empty path (the network as it starts) 1. DataError.
std::int64_t StepOfWeights(const std::string& path);

}  // namespace ada::train
