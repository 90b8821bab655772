// From sections of the configuration to a backend, the specs of graphs and the optimizer's
// parameters. The parts of it that concern data are in run_data.cpp.
#include "run/assemble/assemble.h"

#include <algorithm>
#include <utility>

#include "backend/compare/compare_backend.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cuda/cuda_backend.h"
#include "error.h"
#include "graph/network/precision.h"
#include "graph/network/shapes.h"
#include "io/cores.h"
#include "io/text.h"
#include "record/operand_what_if.h"
#include "run/distributed/devices.h"

namespace ada::run {
namespace {

// Data with tokens need an embedding, and an embedding needs tokens; ConfigError otherwise.
void CheckTokens(const config::Config& config, const Shape& image) {
  const graph::Network network = graph::Resolve(config.model, image, config.task);
  const bool language = config.task == Task::kLanguage;
  if (language && !network.reads_tokens())
    throw ConfigError(graph::PlacePrefix(config.model.where) +
                      "model: task language gives the network tokens; expected a layer of kind "
                      "embedding that reads `input`");
  for (const graph::Node& node : network.nodes) {
    if (!node.kind->reads_tokens) continue;
    const std::string layer = graph::PlacePrefix(node.config.where) + "layer " + node.config.name;
    if (!language)
      throw ConfigError(layer + ": an embedding reads tokens; expected `task: language`");
    if (node.config.vocabulary < config.model.classes)
      throw ConfigError(layer + ": vocabulary " + std::to_string(node.config.vocabulary) +
                        " is less than that of the data, or model.classes: " +
                        std::to_string(config.model.classes));
  }
}

}  // namespace

// Decides in this order: how many threads, which GPU in a run of several processes, whether there
// is a usable GPU at all, and what device.fp8 needs; then makes the backend. Under `auto` a missing
// GPU means that the CPU is used, under `cuda` it is an error.
ChosenBackend MakeBackend(const config::DeviceConfig& device, step::Team& team) {
  using config::DeviceKind;
  const bool several = team.ranks() > 1;
  if (device.compare && several)
    throw ConfigError(
        "device.compare: true compares the ops of one process; start it alone, without mpirun");
  ChosenBackend chosen;
  chosen.threads = device.threads > 0 ? device.threads
                   : several          ? parallel::CoresOf(team.world())
                                      : UsableCores();
  const bool is_auto = device.kind == DeviceKind::kAuto;
  int index = device.index;
  std::string why_not;
  if (several && device.kind != DeviceKind::kCpu) {
    const DeviceOfSeveral own = FindDevice(device, team);
    index = own.index, why_not = own.why_not;
    if (!is_auto && !why_not.empty()) throw DeviceError("device.kind: cuda: " + why_not);
  } else if (is_auto) {
    why_not = backend::WhyNoCuda(index);
  }
  const bool cuda = device.kind == DeviceKind::kCuda || (is_auto && why_not.empty());
  const bool fp8_hardware = device.fp8 == config::Fp8Products::kHardware;
  if (fp8_hardware && !cuda)
    throw DeviceError("device.fp8: hardware: the CPU has no units for fp8; use device.kind: cuda" +
                      (is_auto ? " (auto took the CPU: " + why_not + ")" : "") +
                      " or device.fp8: emulated");
  if (cuda)
    chosen.backend = backend::MakeCudaBackend(
        index, {device.autotune, device.deterministic, fp8_hardware}, team.communicators());
  else
    chosen.backend = backend::cpu::MakeCpuBackend(chosen.threads, team.communicators());
  chosen.has_own_memory = cuda;
  // The second backend computes each op on the CPU as well; in this mode a run stops where the two
  // differ (backend/compare).
  if (device.compare) {
    backend::CompareOptions options{cuda ? "cuda" : "cpu", "cpu", 1, nullptr, fp8_hardware};
    if (cuda) options.slack = 8;  // tensor cores cut off low bits of products that they add
    chosen.backend = backend::MakeCompareBackend(
        std::move(chosen.backend), backend::cpu::MakeCpuBackend(chosen.threads), options);
  }
  chosen.reason = chosen.backend->Describe();
  if (is_auto)  // the reason matters only to users who ask for cuda
    chosen.reason +=
        ": device auto, and " + (cuda ? "it works" : why_not.substr(0, why_not.find(';')));
  return chosen;
}

bool Mixes(const config::Config& config) {
  const config::AugmentConfig& augment = config.data.augment;
  return augment.mixup.alpha > 0 || augment.cutmix.alpha > 0;
}

bool WatchesEverything(const config::Config& config) {
  const config::LogConfig& log = config.log;
  return log.dump_every > 0 || log.dump_on != config::DumpOn::kNever ||
         (log.probe_every > 0 && Contains(log.statistics, "y")) ||
         record::OperandWhatIf::Wanted(log);
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

bool IsMuonMatrix(const config::OptimizerConfig& optimizer, const std::string& name,
                  const std::vector<std::int64_t>& dims) {
  if (dims.size() < 2) return false;
  return std::any_of(optimizer.match.begin(), optimizer.match.end(),
                     [&](const std::string& glob) { return GlobMatch(glob, name); });
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

}  // namespace ada::run
