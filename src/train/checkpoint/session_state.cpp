// What a session begins with and what it keeps: its parts, restored from a checkpoint or fresh, and
// the checkpoints that it writes.
#include <algorithm>
#include <sstream>
#include <utility>

#include "config/load.h"
#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "graph/network/weights_file.h"
#include "scaling/rules/state_text.h"
#include "train/attempt/layer_overflow.h"
#include "train/checkpoint/restore.h"
#include "train/class_weights.h"
#include "train/distributed/team_batches.h"
#include "train/initial_scale.h"
#include "train/run.h"
#include "train/session.h"

namespace ada::train {
namespace {

telemetry::LogChoice LogsOf(const config::Config& config) {
  const config::LogConfig& log = config.log;
  return {.histograms = log.histogram_every > 0,
          .what_if = !log.what_if.empty(),
          .what_if_blocks = OperandWhatIf::Wanted(log),
          .probes = log.probe_every > 0,
          .blocks = Contains(log.statistics, "operands"),
          .classes = MeasuresClasses(config.task),
          .confusion = config.task == Task::kSegmentation,
          .losses = config.task == Task::kDetection,
          .best_by_loss = DecidesByLoss(config)};
}

std::unique_ptr<Probe> MakeProbe(const SessionParts& p) {
  if (p.config.log.probe_every == 0) return nullptr;
  return std::make_unique<Probe>(p.config, p.data.image, p.graph, p.backend, p.team);
}

std::unique_ptr<Dump> MakeDump(const SessionParts& p) {
  const config::LogConfig& log = p.config.log;
  if (log.dump_every == 0 && log.dump_on == config::DumpOn::kNever) return nullptr;
  return std::make_unique<Dump>(p.config, p.folder, p.graph, p.backend, p.team);
}

// A run does not end for the names of classes, which it does not need itself.
InputFacts FactsForCheckpoints(const SessionParts& p) {
  try {
    return InputFactsOf(p.config, p.data);
  } catch (const DataError& error) {
    p.log.Warning(error.what() + std::string("; checkpoints go without names of classes"));
    return {p.data.image, p.data.mean, p.data.std, {}};
  }
}

std::unique_ptr<OperandWhatIf> MakeOperandWhatIf(const SessionParts& p) {
  if (!OperandWhatIf::Wanted(p.config.log)) return nullptr;
  return std::make_unique<OperandWhatIf>(p.config, p.graph, p.backend, p.team);
}

std::vector<StepObserver*> Existing(std::vector<StepObserver*> observers) {
  std::erase(observers, nullptr);
  return observers;
}

}  // namespace

Residence ResidenceOf(const config::Config& config) {
  const bool read = config.log.probe_every > 0 || config.log.dump_on != config::DumpOn::kNever;
  return read ? Residence::kHost : Residence::kAnywhere;
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

Session::Session(const SessionParts& parts, const std::optional<ResumePoint>& from)
    : p_(parts),
      batches_(MakeBatchesOfTeam(parts.backend, parts.data.train,
                                 TrainLoader(parts.config, parts.data), ResidenceOf(parts.config),
                                 parts.config, parts.team, parts.threads)),
      optimizer_(parts.backend, UpdateRuleOf(parts.config),
                 OptimizedParameters(parts.config.optimizer, parts.graph),
                 parts.config.train.clip_norm, WatchedRoundings(parts.graph)),
      probe_(MakeProbe(parts)),
      dump_(MakeDump(parts)),
      operand_what_if_(MakeOperandWhatIf(parts)),
      distributed_(parts.config, parts.team, parts.graph, parts.backend),
      step_log_(parts.config, parts.graph, std::string(parts.policy.name()), recorder_, parts.log,
                probe_.get(), operand_what_if_.get(), parts.team),
      steps_per_epoch_(batches_->batches_per_epoch()),
      total_steps_(TotalSteps(parts.config, steps_per_epoch_)),
      trainer_(parts.config, parts.graph, *batches_, parts.policy, optimizer_, step_log_,
               Existing({probe_.get(), dump_.get(), operand_what_if_.get()}), total_steps_,
               distributed_, parts.team),
      evaluator_(parts.config, parts.data.image, parts.backend, &parts.graph),
      progress_(parts.log, parts.progress),
      input_facts_(FactsForCheckpoints(parts)),
      start_(parts.before ? parts.before->start : telemetry::SteadySeconds()),
      last_timing_(telemetry::SteadySeconds()) {
  if (p_.before) training_seconds_ = p_.before->training_seconds, images_ = p_.before->images;
  if (KeepsAverage(p_.config))
    average_ = std::make_unique<WeightAverage>(p_.config, p_.data.image, p_.backend, p_.graph);
  if (MeasuresClasses(p_.config.task)) class_names_ = NamesOfClasses(p_.config, p_.data);
  if (RecomputesNorms(p_.config)) {
    if (!EvaluatesAverage(p_.config) ||
        p_.config.evaluate.weights != config::EvaluatedWeights::kEma)
      norms_ = std::make_unique<NormStatistics>(p_.config, p_.data, p_.graph, p_.backend, p_.team);
    if (EvaluatesAverage(p_.config)) {
      average_graph_ =
          StatisticsGraph(p_.config, p_.data.image, p_.backend, average_->graph(), p_.team);
      average_norms_ = std::make_unique<NormStatistics>(p_.config, p_.data, *average_graph_,
                                                        p_.backend, p_.team);
    }
  }
  if (!from) {
    const graph::WeightsCover cover =
        graph::Initialize(p_.graph, p_.config.model.init, p_.config.seed, p_.backend);
    if (!cover.missing.empty()) p_.log.Warning(cover.MissingText());
    if (!cover.ignored.empty()) p_.log.Info(cover.IgnoredText());
    if (!cover.skipped.empty()) p_.log.Info(cover.SkippedText());
    if (p_.policy.AwaitsStart()) ChooseStart();
    optimizer_.RoundMasters();
    if (average_) average_->Start();
    return;
  }
  Restore(*from);
}

// init_scale: auto. The forward pass that it takes leaves no trace.
void Session::ChooseStart() {
  const double largest = LargestLogitGradient(p_.config, p_.data, p_.graph, p_.backend, p_.team);
  start_scale_ = scaling::ChooseStart(p_.config.scaling, largest, NarrowestGradient(p_.graph));
  p_.policy.Start(start_scale_->scale);
  graph::Initialize(p_.graph, p_.config.model.init, p_.config.seed, p_.backend);
}

void Session::Restore(const ResumePoint& from) {
  const CheckpointState& s = from.state;
  telemetry::CheckLogs(p_.folder, s.lengths);
  const bool switched =
      s.step < total_steps_ && config::LastStepAsAt(p_.whole.precision, s.step) == s.step;
  RestoreParts(from, p_.team.rank(), switched, p_.graph, optimizer_, p_.policy, p_.backend);
  if (average_)
    LoadCheckpointTensors(from.stem, average_->graph(), nullptr, p_.backend, kAveragePrefix);
  step_log_.LoadScenarios(s.scenarios);
  trainer_.Resume({s.step, s.skips_in_a_row, s.retries, s.schedule_steps});
  best_top1_ = s.best_top1;
  checkpoint_step_ = s.step;
  lengths_ = s.lengths;
}

void Session::OpenLogs() {
  recorder_.Open(p_.folder, lengths_, LogsOf(p_.config), p_.config.log.tensorboard);
  const std::string folder = p_.folder + "/checkpoints";
  RemoveOtherCheckpoints(folder, checkpoint_step_);
  // A kill may have come before what this checkpoint made superfluous was gone.
  if (checkpoint_step_ >= 0) PruneCheckpoints(folder, p_.config.checkpoint.keep, checkpoint_step_);
  skipped_ = recorder_.run().skipped();
  for (const telemetry::SplitTotals& split : recorder_.run().evaluations())
    if (split.last.step == checkpoint_step_) evaluated_step_ = checkpoint_step_;
}

CheckpointState Session::State() {
  CheckpointState s;
  s.step = trainer_.steps();
  s.skips_in_a_row = trainer_.skips_in_a_row();
  s.retries = trainer_.retries();
  s.schedule_steps = trainer_.schedule_steps();
  s.updates = optimizer_.updates();
  s.seed = p_.config.seed;
  s.best_top1 = best_top1_;
  if (ComputesClassWeights(p_.config)) s.class_weights = p_.config.train.class_weights.values;
  s.policy = p_.policy.SaveState();
  for (const graph::ScalePoint& point : p_.graph.scales())
    if (point.scaler != nullptr)
      s.layers[point.layer] = scaling::SaveLayerState(point.scaler->state);
  s.layers.insert(layer_states_.begin(), layer_states_.end());
  for (const graph::ScaledTensor& t : p_.graph.scaled_tensors())
    s.tensors[t.name] = scaling::SaveTensorScale(t.scale->history, *t.scale->per_tensor_scale.host);
  s.scenarios = step_log_.SaveScenarios();
  s.lengths = recorder_.Sync();
  s.input = input_facts_;
  s.data_facts = p_.data.facts;
  s.config = config::ToYaml(p_.whole);
  s.backend = p_.backend.Describe();
  s.version = Versions().front().value;
  return s;
}

// Where each process decides on its own it has states of its own.
void Session::GatherLayerStates() {
  layer_states_.clear();
  if (p_.team.decides_together()) return;
  std::string text;  // a line a layer: name, then keys and values, between tabs
  for (const graph::ScalePoint& point : p_.graph.scales()) {
    if (point.scaler == nullptr) continue;
    text += point.layer;
    for (const auto& [key, value] : scaling::SaveLayerState(point.scaler->state))
      text += '\t' + key + '\t' + value;
    text += '\n';
  }
  const std::vector<std::string> all = p_.team.AllGatherText(text);
  for (int rank = 1; rank < p_.team.ranks(); ++rank) {
    std::istringstream lines(all[static_cast<std::size_t>(rank)]);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string layer, key, value;
      std::getline(words, layer, '\t');
      scaling::StateMap& state = layer_states_[OfProcess(layer, rank)];
      while (std::getline(words, key, '\t') && std::getline(words, value, '\t')) state[key] = value;
    }
  }
}

// The logs first: where the run's folder is gone they say so, before another is made.
void Session::WriteState(const std::string& stem) {
  if (!writes()) return;
  const CheckpointState state = State();
  CreateFolder(p_.folder + "/checkpoints");
  WriteCheckpoint(stem, state, p_.graph, optimizer_, average_ ? &average_->graph() : nullptr,
                  p_.backend);
}

void Session::Checkpoint() {
  progress_.Pause("writing a checkpoint");
  const std::string folder = p_.folder + "/checkpoints";
  const std::int64_t step = trainer_.steps();
  checkpoint_step_ = step;
  GatherLayerStates();
  if (!writes()) return;
  WriteState(CheckpointStem(folder, step));
  PruneCheckpoints(folder, p_.config.checkpoint.keep, step);
  p_.log.Debug("checkpoint of step " + std::to_string(checkpoint_step_) + " written");
  progress_.Pause();
}

}  // namespace ada::train
