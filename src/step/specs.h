// From the configuration to what a step works with: the specs of graphs, the rule and parameters of
// the optimizer's update, and how many steps there are.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "backend/update.h"
#include "config/config.h"
#include "graph/graph.h"
#include "optim/optimizer.h"
#include "scaling/policies/policy.h"
#include "scaling/policies/settings.h"

namespace ada::step {

// optimizer.kind and its numbers, with precision.masters and optimizer_state.
backend::UpdateRule UpdateRuleOf(const config::OptimizerConfig& optimizer,
                                 const config::PrecisionConfig& precision);
// The name of the format or layout in which a state of this name is kept.
std::string StateFormatName(const config::PrecisionConfig& precision,
                            const backend::UpdateRule& rule, const std::string& state);

// Has `plan` put other values in the place of gradients that are not finite and carry `scale`.
void AddRepair(const scaling::OverflowRepair& repair, double scale, backend::UpdatePlan& plan);

// Whether training images may be mixed and have two labels.
bool Mixes(const config::Config& config);

// Whether the run observes tensors that a fused op never stores (dumps, probes of y, operands of
// log.what_if): then nothing is fused, which changes no bit of the results.
bool WatchesEverything(const config::Config& config);
// Whether it observes every dx that is rounded (probes of dx): then no batch norm is recomputed by
// the layer that reads it (RecomputedNorm), which changes no bit of the results.
bool ProbesGradients(const config::Config& config);
// Gives a graph the loss that the run trains with: label smoothing, class weights, mixed images.
// Every graph whose gradients are compared with the run's needs it.
void TakeTrainingLoss(const config::Config& config, graph::GraphSpec& spec);
// The spec of the training graph; `policy` gives the layers' rules. Input n: a micro-batch.
graph::GraphSpec TrainGraph(const config::Config& config, const Shape& image,
                            scaling::Policy& policy);
// Evaluates plain cross-entropy: label smoothing and class weights are for training only.
graph::GraphSpec EvaluationGraph(const config::Config& config, const Shape& image);

// The rule of the update.
inline backend::UpdateRule UpdateRuleOf(const config::Config& config) {
  return UpdateRuleOf(config.optimizer, config.precision);
}
// Whether an entry of optimizer.no_decay matches this parameter.
bool IsExemptFromDecay(const std::string& pattern, const graph::Parameter& parameter);
// A parameter with the factors of optimizer.groups; optimizer.no_decay takes precedence.
optim::OptimizedParameter OptimizedFrom(const config::OptimizerConfig& optimizer,
                                        const graph::Parameter& parameter);
// Those of a graph.
std::vector<optim::OptimizedParameter> OptimizedParameters(const config::OptimizerConfig& optimizer,
                                                           const graph::Graph& graph);

// Returns the number of batches in an epoch of `images` training images; a smaller last batch
// counts only without data.drop_last.
std::int64_t StepsPerEpoch(const config::Config& config, std::int64_t images);
// Attempts of the whole run: epochs, or train.max_steps where that is less.
std::int64_t TotalSteps(const config::Config& config, std::int64_t steps_per_epoch);

}  // namespace ada::step
