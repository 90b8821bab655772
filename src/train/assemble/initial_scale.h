// `init_scale: auto`: looks at the first batch before the first step.
#pragma once
#include "train/assemble/assemble.h"
#include "train/distributed/team.h"

namespace ada::train {

// Largest |gradient| that the loss gives at S = 1 over the batch with which training starts, in
// fp32. One forward pass, and for tasks other than classification a backward pass: the graph's
// running statistics move and must be initialized afterwards. Each process of a team looks at its
// part.
double LargestLogitGradient(const config::Config& config, const RunData& data, graph::Graph& graph,
                            backend::Backend& backend, Team& team);

// Largest value of the narrowest format that any gradient is stored in.
double NarrowestGradient(const graph::Graph& graph);

}  // namespace ada::train
