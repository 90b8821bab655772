// What a session keeps: its state, restored from a checkpoint, the checkpoints that it writes, and
// logs that go on where they are.
#include <sstream>

#include "config/load.h"
#include "io/file.h"
#include "io/text.h"
#include "run/about/about.h"
#include "run/assemble/assemble.h"
#include "run/checkpoint/checkpoint.h"
#include "run/session.h"
#include "scaling/rules/state_text.h"

namespace ada::run {
namespace {

// Which CSV files a run has: each exists only where the configuration fills it.
telemetry::LogChoice LogsOf(const config::Config& config) {
  const config::LogConfig& log = config.log;
  return {.histograms = log.histogram_every > 0,
          .what_if = !log.what_if.empty(),
          .what_if_blocks = log.has_block_scenarios(),
          .probes = log.probe_every > 0,
          .blocks = Contains(log.statistics, "operands"),
          .accumulators = config.precision.accumulates(),
          .what_if_accumulators = !log.judged_sums().empty(),
          .classes = MeasuresClasses(config.task),
          .confusion = config.task == Task::kSegmentation,
          .losses = config.task == Task::kDetection,
          .best_by_loss = DecidesByLoss(config)};
}

}  // namespace

// Logs are checked before anything is loaded, because they are cut to the lengths of the checkpoint
// later, in OpenLogs, and a log that is shorter could not be. `switched`: the checkpoint's step is
// the last one of its precision, so the first step to come has other formats.
void Session::Restore(const ResumePoint& from) {
  const CheckpointState& s = from.state;
  telemetry::CheckLogs(run_.folder, s.lengths);
  const bool switched =
      s.step < total_steps_ && config::LastStepAsAt(run_.config.precision, s.step) == s.step;
  RestoreParts(from, run_.team.rank(), switched, p_.graph, optimizer_, p_.policy, p_.backend);
  if (average_)
    LoadCheckpointTensors(OpenCheckpointTensors(from.stem), average_->graph(), nullptr, p_.backend,
                          kAveragePrefix);
  for (const std::string& name : step_log_.LoadScenarios(s.scenarios))
    run_.log.Info("log.what_if: scenario " + name +
                  " is another one than the run had under this name; it begins anew");
  trainer_.Resume({s.step, s.skips_in_a_row, s.retries, s.schedule_steps}, s.tensors);
  best_top1_ = s.best_top1;
  checkpoint_step_ = s.step;
  lengths_ = s.lengths;
}

// The recorder reads what stays of the logs, from which the number of skipped steps and the last
// evaluation are known again: they are not in the checkpoint.
void Session::OpenLogs() {
  recorder_.Open(run_.folder, lengths_, LogsOf(p_.config), p_.config.log.tensorboard);
  const std::string folder = run_.folder + "/checkpoints";
  RemoveOtherCheckpoints(folder, checkpoint_step_);
  // A kill may have come between this checkpoint and the deletion of older ones.
  if (checkpoint_step_ >= 0) PruneCheckpoints(folder, p_.config.checkpoint.keep, checkpoint_step_);
  skipped_ = recorder_.run().skipped();
  for (const telemetry::SplitTotals& split : recorder_.run().evaluations())
    if (split.last.step == checkpoint_step_) evaluated_step_ = checkpoint_step_;
}

// All that the JSON of a checkpoint holds. The logs are written out (Sync) before their lengths are
// taken, so that a checkpoint never refers to bytes that a crash could lose.
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
  p_.graph.CollectLayerScalers();
  for (const graph::ScalePoint& point : p_.graph.scales())
    if (point.scaler != nullptr)
      s.layers[point.layer] = scaling::SaveLayerState(point.scaler->state);
  s.layers.insert(layer_states_.begin(), layer_states_.end());
  for (const graph::ScaledTensor& t : p_.graph.scaled_tensors())
    s.tensors[t.name()] = t.scale->Save();
  s.tensors.merge(trainer_.SaveScales());
  s.scenarios = step_log_.SaveScenarios();
  s.lengths = recorder_.Sync();
  s.input = input_facts_;
  s.data_facts = run_.data.facts;
  s.config = config::ToYaml(run_.config);
  s.backend = p_.backend.Describe();
  s.version = Versions().front().value;
  return s;
}

// Where each process decides on its own it has states of its own.
void Session::GatherLayerStates() {
  layer_states_.clear();
  if (run_.team.decides_together()) return;
  p_.graph.CollectLayerScalers();
  std::string text;  // a line a layer: name, then keys and values, between tabs
  for (const graph::ScalePoint& point : p_.graph.scales()) {
    if (point.scaler == nullptr) continue;
    text += point.layer;
    for (const auto& [key, value] : scaling::SaveLayerState(point.scaler->state))
      text += '\t' + key + '\t' + value;
    text += '\n';
  }
  const std::vector<std::string> all = run_.team.AllGatherText(text);
  for (int rank = 1; rank < run_.team.ranks(); ++rank) {
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

// The error that is on its way is the one that counts: what goes wrong here is only told.
void Session::KeepWeights(const std::map<std::string, std::int64_t>& lengths) {
  if (!writes()) return;
  const std::int64_t step = trainer_.steps();
  const std::string folder = run_.folder + "/checkpoints", stem = CheckpointStem(folder, step);
  try {
    RestoreNorms();
    if (checkpoint_step_ != step) {
      CheckpointState state = State();
      state.lengths = lengths;
      WriteState(stem, state);
      PruneCheckpoints(folder, p_.config.checkpoint.keep, step);
      checkpoint_step_ = step;
    }
    run_.log.Warning("the evaluation after step " + std::to_string(step) +
                     " failed; the weights of that step are in " + stem +
                     ".safetensors; when the cause is mended, go on with: " + ResumeCommand());
  } catch (const std::exception& error) {
    run_.log.Warning("the evaluation after step " + std::to_string(step) +
                     " failed, and so did writing the weights of that step: " + error.what());
  }
}

// Flushes the logs first: if the run's folder is gone, they report that before one is created.
void Session::WriteState(const std::string& stem) {
  if (!writes()) return;
  WriteState(stem, State());
}

void Session::WriteState(const std::string& stem, const CheckpointState& state) {
  CreateFolder(run_.folder + "/checkpoints");
  WriteCheckpoint(stem, state, p_.graph, optimizer_, average_ ? &average_->graph() : nullptr,
                  p_.backend);
}

// Every process notes the step and takes part in gathering; only the first one writes. Old
// checkpoints go when the one that replaces them is whole.
void Session::Checkpoint() {
  progress_.Pause("writing a checkpoint");
  const std::string folder = run_.folder + "/checkpoints";
  const std::int64_t step = trainer_.steps();
  checkpoint_step_ = step;
  GatherLayerStates();
  if (!writes()) return;
  WriteState(CheckpointStem(folder, step));
  PruneCheckpoints(folder, p_.config.checkpoint.keep, step);
  run_.log.Debug("checkpoint of step " + std::to_string(checkpoint_step_) + " written");
  progress_.Pause();
}

}  // namespace ada::run
