// The graph of an evaluation is the base: that of a training adds what only training has. The keys
// of `log` decide which steps are written down.
#include "step/specs.h"

#include <algorithm>

#include "error.h"
#include "graph/network/precision.h"
#include "graph/network/shapes.h"
#include "io/text.h"
#include "scaling/policies/policies.h"
#include "step/step_observer.h"

namespace ada::step {
namespace {

// Data with tokens need an embedding, and an embedding needs tokens; ConfigError otherwise.
void CheckTokens(const config::Config& config, const Shape& image) {
  const graph::Network network = graph::Resolve(config.model, image, config.task);
  const bool language = config.task == Task::kLanguage;
  if (language && !network.reads_tokens())
    throw ConfigError(PlacePrefix(config.model.where) +
                      "model: task language gives the network tokens; expected a layer of kind "
                      "embedding that reads `input`");
  for (const graph::Node& node : network.nodes) {
    if (!node.kind->reads_tokens) continue;
    const std::string layer = PlacePrefix(node.config.where) + "layer " + node.config.name;
    if (!language)
      throw ConfigError(layer + ": an embedding reads tokens; expected `task: language`");
    if (node.config.vocabulary < config.model.classes)
      throw ConfigError(layer + ": vocabulary " + std::to_string(node.config.vocabulary) +
                        " is less than that of the data, or model.classes: " +
                        std::to_string(config.model.classes));
  }
}

// Whether muon updates a parameter itself: a matrix or a stack of matrices whose name one of
// optimizer.match fits.
bool IsMuonMatrix(const config::OptimizerConfig& optimizer, const std::string& name,
                  const std::vector<std::int64_t>& dims) {
  if (dims.size() < 2) return false;
  return std::any_of(optimizer.match.begin(), optimizer.match.end(),
                     [&](const std::string& glob) { return GlobMatch(glob, name); });
}

}  // namespace

bool Mixes(const config::Config& config) {
  const config::AugmentConfig& augment = config.data.augment;
  return augment.mixup.alpha > 0 || augment.cutmix.alpha > 0;
}

bool WatchesEverything(const config::Config& config) {
  const config::LogConfig& log = config.log;
  return log.dump_every > 0 || log.dump_on != config::DumpOn::kNever ||
         (log.probe_every > 0 && Contains(log.statistics, "y")) || log.has_block_scenarios();
}

bool ProbesGradients(const config::Config& config) {
  return config.log.probe_every > 0 && Contains(config.log.statistics, "dx");
}

// Starts from the evaluation's spec and adds what only training has: the loss with smoothing and
// weights, counts, what observers need and the policy's rules. The callbacks refer to `policy`,
// which must outlive the building of the graph.
void TakeTrainingLoss(const config::Config& config, graph::GraphSpec& spec) {
  spec.label_smoothing = static_cast<float>(config.train.label_smoothing);
  for (const double weight : config.train.class_weights.values)
    spec.class_weights.push_back(static_cast<float>(weight));
  spec.mixes = Mixes(config);
}

graph::GraphSpec TrainGraph(const config::Config& config, const Shape& image,
                            scaling::Policy& policy) {
  graph::GraphSpec spec = EvaluationGraph(config, image);
  TakeTrainingLoss(config, spec);
  spec.input.n = config.data.batch_size / config.train.accumulate;
  spec.training = true;
  spec.fuse = !WatchesEverything(config);
  spec.recompute = !ProbesGradients(config);
  spec.counted = config.log.statistics;
  if (policy.CountsAboveEdge()) spec.counted.emplace_back("dx");
  if (config.log.histogram_every > 0) spec.histograms = config.log.statistics;
  spec.judged_sums = config.log.judged_sums();
  spec.judged_formats = config.log.judged_formats();
  spec.reference = policy.FollowsReference();
  spec.scales_batch_norms = policy.ScalesBatchNorms();
  spec.scales_attention = policy.ScalesAttention();
  spec.rescales_branches = [&policy](const std::string& layer) {
    return policy.RescalesBranches(layer);
  };
  spec.rule_for = [&policy](const graph::ScalerRequest& request) {
    return policy.RuleFor({request.layer, request.fan_reference, request.fan_exact,
                           request.gradient_format.smallest_subnormal(),
                           request.gradient_format.largest(), request.has_weight,
                           FormatName(request.dy_format) == "fp16"});
  };
  return spec;
}

// The spec refers to config.model, which must outlive it. Formats are those of training, because an
// evaluation measures the network as it is trained, including its rounding.
graph::GraphSpec EvaluationGraph(const config::Config& config, const Shape& image) {
  CheckTokens(config, image);
  graph::GraphSpec spec;
  spec.model = &config.model;
  spec.task = config.task;
  spec.negatives = config.detection.negatives;
  spec.precision = graph::ResolvePrecision(config.precision,
                                           scaling::MakePolicy(config.scaling)->OwnsLayerScales());
  spec.input = image;
  spec.input.n = config.data.evaluation_batch();
  spec.training = false;
  return spec;
}

bool IsExemptFromDecay(const std::string& pattern, const graph::Parameter& parameter) {
  if (pattern == config::kVectors) return parameter.dims.size() == 1;
  return GlobMatch(pattern, parameter.name);
}

// Groups are applied in order, so that of several groups that match a parameter the last one sets
// each factor that it has.
optim::OptimizedParameter OptimizedFrom(const config::OptimizerConfig& optimizer,
                                        const graph::Parameter& p) {
  optim::OptimizedParameter parameter{p.name, p.value, p.gradient};
  parameter.dims = p.dims;
  parameter.other = optimizer.kind == backend::UpdateRule::Kind::kMuon &&
                    !IsMuonMatrix(optimizer, p.name, p.dims);
  for (const config::ParameterGroupConfig& group : optimizer.groups) {
    if (!GlobMatch(group.match, p.name)) continue;
    parameter.lr = group.lr_factor.value_or(parameter.lr);
    parameter.decay = group.decay_factor.value_or(parameter.decay);
  }
  for (const std::string& pattern : optimizer.no_decay)
    if (IsExemptFromDecay(pattern, p)) parameter.decay = 0;
  return parameter;
}

std::vector<optim::OptimizedParameter> OptimizedParameters(const config::OptimizerConfig& optimizer,
                                                           const graph::Graph& graph) {
  std::vector<optim::OptimizedParameter> trained;
  for (const graph::Parameter& p : graph.parameters())
    if (p.gradient) trained.push_back(OptimizedFrom(optimizer, p));  // no running statistic
  return trained;
}

std::int64_t StepsPerEpoch(const config::Config& config, std::int64_t images) {
  const std::int64_t batch = config.data.batch_size;
  return config.data.drop_last ? images / batch : (images + batch - 1) / batch;
}

std::int64_t TotalSteps(const config::Config& config, std::int64_t steps_per_epoch) {
  if (config.train.epochs == 0) return config.train.max_steps;
  const std::int64_t steps = config.train.epochs * steps_per_epoch;
  return config.train.max_steps > 0 ? std::min(steps, config.train.max_steps) : steps;
}

bool IsDue(std::int64_t every, std::int64_t step) {
  return every > 0 && (step == 1 || step % every == 0);
}

bool LogSchedule::Logs(std::int64_t step) const {
  const config::LogConfig& log = config_.log;
  return IsDue(log.every, step) || IsDue(log.probe_every, step) || IsDue(log.dump_every, step) ||
         TakesHistograms(step);
}

bool LogSchedule::Counts(std::int64_t step) const {
  return Logs(step) && !config_.log.statistics.empty();
}

bool LogSchedule::TakesHistograms(std::int64_t step) const {
  return IsDue(config_.log.histogram_every.value_or(0), step);
}

bool LogSchedule::CountsUpdates(std::int64_t step) const {
  const config::PrecisionConfig& p = config_.precision;
  const bool kept_short = p.masters.format != kFp32 || !p.optimizer_state.plain();
  const bool muon = config_.optimizer.kind == backend::UpdateRule::Kind::kMuon;
  return Logs(step) && (kept_short || muon || Contains(config_.log.statistics, "update"));
}

}  // namespace ada::step
