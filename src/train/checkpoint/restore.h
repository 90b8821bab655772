// Puts the state of a checkpoint into the parts of a training: what a run that goes on and a run
// that is forked have in common. Position, logs and averages are the caller's.
#pragma once
#include <string>

#include "graph/graph.h"
#include "optim/optimizer.h"
#include "scaling/policies/policy.h"
#include "train/checkpoint/checkpoint.h"

namespace ada::train {

// Returns how a checkpoint calls the state that a layer has in a process other than the first.
std::string OfProcess(const std::string& layer, int rank);

// Weights, running statistics, optimizer state, scales of tensors, the policy and each layer's own
// state become those of `from`. `rank`: of the process, where each decides on its own (else 0).
// switched: as of LoadTensorScales. DataError where the checkpoint lacks one of them.
void RestoreParts(const ResumePoint& from, int rank, bool switched, graph::Graph& graph,
                  optim::Optimizer& optimizer, scaling::Policy& policy, backend::Backend& backend);

}  // namespace ada::train
