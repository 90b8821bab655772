// The time of a step, measured before a run begins (--dry-run --measure).
#pragma once
#include <cstdint>
#include <string>

#include "backend/backend.h"
#include "config/config.h"
#include "graph/graph.h"
#include "optim/optimizer.h"
#include "scaling/policies/policy.h"

namespace ada::run {

inline constexpr int kMeasuredSteps = 3;

// --dry-run --measure: how long a step takes, on made-up images of the right shape. Returns the
// seconds of the fastest of three steps: passes over all micro-batches and the update, without
// loading, logs and evaluation. The network starts as model.init.scheme draws it (no file is read);
// its weights change.
double MeasureStep(const config::Config& config, graph::Graph& graph, optim::Optimizer& optimizer,
                   const scaling::Policy& policy, const Shape& image, backend::Backend& backend);

// The lines of --dry-run: "a step 1.25 s, 102 images/s" and an epoch of so many steps. image: the
// network's input.
std::string MeasuredText(double seconds, const config::Config& config, const Shape& image,
                         std::int64_t steps_per_epoch);

}  // namespace ada::run
