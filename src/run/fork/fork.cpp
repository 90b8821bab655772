// Makes forks, moves the weights of twins, and says what keeps a fork from training.
//
// A fork is a short run that is put together as run.cpp puts one together, without a folder, logs
// or observers: what it computes must be what the run itself would have computed. Twins are forks
// whose weights are perturbed by as much as a rounding may change them, to show how much results
// vary by chance.
#include "run/fork/fork.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <set>

#include "config/load.h"
#include "error.h"
#include "graph/network/parameters.h"
#include "io/hash.h"
#include "io/text.h"
#include "number/random.h"
#include "record/step_log.h"
#include "run/assemble/assemble.h"
#include "run/checkpoint/checkpoint.h"
#include "run/evaluate/weights.h"
#include "scaling/policies/start_scale.h"
#include "step/attempt/attempt.h"
#include "step/batches/batches.h"
#include "step/specs.h"
#include "step/trainer.h"
#include "step/weight_values.h"
#include "telemetry/recorder.h"

namespace ada::run {
namespace {

// The distance between the numbers of `format` around x.
// Below the smallest normal number the distance no longer shrinks: subnormal numbers are evenly
// spaced.
double UnitAround(const NumberFormat& format, double x) {
  const int lowest = std::ilogb(format.smallest_normal());
  const int exponent = x == 0 ? lowest : std::max(std::ilogb(std::fabs(x)), lowest);
  return std::ldexp(1.0, exponent - format.mantissa_bits);
}

// A neighbor of x in `format`, the nearer one with the higher probability, so that even a move of
// less than a unit has an effect.
float RoundedByChance(const NumberFormat& format, double x, float chance) {
  const double unit = UnitAround(format, x), below = std::floor(x / unit) * unit;
  const double rounded = (x - below) / unit > static_cast<double>(chance) ? below + unit : below;
  return static_cast<float>(std::clamp(rounded, -format.largest(), format.largest()));
}

}  // namespace

// Each parameter has a random stream by its name, so that the numbers of one do not depend on what
// others the network has.
void MoveWeights(const ForkSpec& spec, graph::Graph& graph, backend::Backend& backend) {
  const NumberFormat& masters = spec.precision.masters.format;
  for (const graph::Parameter& parameter : graph.parameters()) {
    if (!parameter.gradient) continue;
    const auto unit = spec.units.find(parameter.layer);
    const NumberFormat format = unit == spec.units.end() ? kFp32 : unit->second;
    std::vector<float> values = step::HostValues(parameter.value, backend);
    RandomStream random(spec.twin, StreamId("twin:" + parameter.name));
    for (float& value : values) {
      const auto wide = static_cast<double>(value);
      const double step = std::max(UnitAround(format, wide), UnitAround(masters, wide));
      const double moved = wide + (static_cast<double>(random.Uniform()) - 0.5) * step;
      value = RoundedByChance(masters, moved, random.Uniform());
    }
    backend.Upload(parameter.value.data, values.data(), parameter.value.bytes());
  }
}

// Names the condition under which a fork's result cannot be used. The order is that of severity: a
// loss that is not finite, then no update at all, then gradients that cannot be compared.
std::string TroubleOf(const ForkSpec& spec, const ForkResult& result, const step::StepResult& last,
                      std::int64_t skips, const telemetry::Finiteness& finiteness) {
  const auto& losses = result.losses;
  const auto bad =
      std::find_if(losses.begin(), losses.end(), [](double loss) { return !std::isfinite(loss); });
  std::string what;
  if (bad != losses.end()) {
    what = "has a loss that is not finite";
  } else if (skips == spec.steps) {
    what = skips == 1 ? "skips the step" : "skips all " + Counted(skips, "step");
  } else if (spec.gradients && last.overflow) {
    what = "has gradients that are not finite";
  } else {
    return "";
  }
  if (!last.error.empty()) return what + ", and the policy ends it: " + last.error;
  const telemetry::FirstNotFinite first = finiteness.first();
  return what + "; the first tensor that is not finite is " + telemetry::NameText(first) + ": " +
         telemetry::AdviceText(first);
}

namespace {

// The configuration of a run that is only looked at: one process, and no log of anything.
config::Config Quiet(config::Config config) {
  config.log = config::LogConfig();
  config.log.every = 0;
  config.log.histogram_every = 0;
  config.log.statistics.clear();
  config.log.alert_underflow_pct = 0;
  config.parallel = config::ParallelConfig();
  config.train.max_minutes = 0;
  return config;
}

}  // namespace

// The precision becomes that of the step after the checkpoint, without the schedule's later
// switches: all steps of a fork have one precision. Weights of classes come from the checkpoint
// where it has them, so that the data need not be counted again.
ForkSource::ForkSource(config::Config config, std::optional<ResumePoint> from)
    : from_(std::move(from)) {
  info_ = InspectData(config);
  config_ = Quiet(Completed(std::move(config), info_));
  switched_ = config::LastStepAsAt(config_.precision, step()) == step();
  config_.precision = config::PrecisionAt(config_.precision, step() + 1);
  data_ = ReadData(config_, info_);
  if (!ComputesClassWeights(config_)) return;
  std::vector<double>& weights = config_.train.class_weights.values;
  if (from_) weights = from_->state.class_weights;
  if (weights.empty()) weights = ComputeClassWeights(config_, data_).values;
}

// A run that goes on may delete the checkpoint until it is open: then there is a newer one.
ForkSource ForkSource::OfRun(const std::string& folder, int threads) {
  for (std::string path = CheckpointOfRun(folder, /*best=*/false);;) {
    const std::string stem = std::filesystem::path(path).replace_extension().string();
    try {
      auto tensors = std::make_shared<const SafetensorsFile>(OpenCheckpointTensors(stem));
      ResumePoint from{stem, ReadCheckpointState(stem), std::move(tensors)};
      std::string hash = HashFile(stem + ".json");
      config::Config config =
          config::LoadText(from.state.config, stem + ".json (config)", {}).config;
      config::FillDefaults(config);
      if (threads > 0) config.device.threads = threads;
      ForkSource source(std::move(config), std::move(from));
      source.checkpoint_hash_ = std::move(hash);
      return source;
    } catch (const DataError&) {
      const std::string newest = CheckpointOfRun(folder, /*best=*/false);
      if (newest == path) throw;
      path = newest;
    }
  }
}

ForkSource ForkSource::OfConfig(const config::Config& config) { return {config, std::nullopt}; }

// The checkpoint's file of words holds the hash of its tensors.
std::string ForkSource::Identity() const {
  const std::optional<DataFacts> facts = FactsOfFiles(data_, info_);
  if (!facts) return checkpoint_hash_;
  std::vector<std::string> paths = config_.data.more_paths;
  paths.push_back(config_.data.path);
  return checkpoint_hash_ + " " + facts->hash + " " +
         TimesOfFiles(paths, {&data_.train, &data_.validation, &data_.test});
}

// Everything is made anew for each fork, the backend included, since its memory is free again only
// when it dies.
ForkResult ForkSource::Run(const ForkSpec& spec) const {
  config::Config config = config_;
  config.precision = spec.precision;
  const ChosenBackend chosen = MakeBackend(config.device);
  backend::Backend& backend = *chosen.backend;
  const std::unique_ptr<scaling::Policy> policy = scaling::MakePolicy(config.scaling);
  const auto graph = graph::Graph::Build(step::TrainGraph(config, data_.image, *policy), backend);
  const std::unique_ptr<step::Batches> batches =
      step::MakeBatches(backend, data_.train, TrainLoader(config, data_), step::Residence::kHost);
  optim::Optimizer optimizer(backend, step::UpdateRuleOf(config),
                             step::OptimizedParameters(config.optimizer, *graph),
                             config.train.clip_norm, step::WatchedRoundings(*graph));
  telemetry::Recorder recorder;  // that writes nothing
  telemetry::Log log(telemetry::LogLevel::kError);
  record::StepLog step_log(config, *graph, std::string(policy->name()), recorder, log, nullptr);
  const std::int64_t per_epoch = batches->batches_per_epoch();
  const std::int64_t total = step::TotalSteps(config, per_epoch);
  step::Team& team = step::Team::OfOne();
  step::DistributedGradients gradients(config, team, *graph, backend);
  step::Trainer trainer(config, *graph, *batches, *policy, optimizer, step_log, {}, total,
                        gradients, team);
  if (from_) {
    const CheckpointState& s = from_->state;
    RestoreParts(*from_, 0, switched_, *graph, optimizer, *policy, backend);
    // A finished run has no steps left in its schedule: its forks use the rate of its last steps.
    const bool hold = config.train.schedule_on_skip == config::ScheduleOnSkip::kHold;
    const std::int64_t made = hold ? s.updates : s.schedule_steps;
    const std::int64_t back = std::max<std::int64_t>(made + spec.steps - total, 0);
    trainer.Resume({s.step, s.skips_in_a_row, s.retries, s.schedule_steps, std::min(back, made)},
                   s.tensors);
  } else {
    graph::Initialize(*graph, config.model.init, config.seed, backend);
    if (policy->AwaitsStart()) {
      const double largest = LargestLogitGradient(config, data_, *graph, backend, team);
      policy->Start(scaling::ChooseStart(config.scaling, largest, NarrowestGradient(*graph)).scale);
      graph::Initialize(*graph, config.model.init, config.seed, backend);
    }
  }
  // Masters of the checkpoint may lie in a wider format than this fork's.
  optimizer.RoundMasters();
  if (spec.twin != 0) MoveWeights(spec, *graph, backend);
  ForkResult result;
  step::StepResult last;
  std::int64_t skips = 0;
  for (std::int64_t step = 0; step < spec.steps && last.error.empty(); ++step) {
    last = trainer.Step();
    result.losses.push_back(last.loss);
    if (last.skipped) ++skips;
  }
  // The policy may have ended the run.
  result.losses.resize(static_cast<std::size_t>(spec.steps), NAN);
  result.trouble = TroubleOf(spec, result, last, skips, recorder.run().finiteness());
  if (!spec.gradients) return result;
  for (const graph::Parameter& parameter : graph->parameters()) {
    if (!parameter.gradient) continue;
    result.layers.push_back(parameter.layer);
    result.gradients.push_back(step::HostValues(parameter.gradient, backend));
  }
  return result;
}

}  // namespace ada::run
