// The loop of a run: its objects, its steps, evaluations and checkpoints when they are due, and how
// it ends.
#include "run/session.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "config/load.h"
#include "error.h"
#include "graph/network/parameters.h"
#include "io/shown_text.h"
#include "run/assemble/assemble.h"
#include "step/attempt/attempt.h"
#include "step/batches/batches.h"
#include "step/specs.h"

namespace ada::run {
namespace {

// The observers of a session: each is made only where the configuration asks for it, and null means
// that the steps are not observed in that way.
std::unique_ptr<record::Probe> MakeProbe(const RunContext& run, const SessionParts& p) {
  if (p.config.log.probe_every == 0) return nullptr;
  return std::make_unique<record::Probe>(p.config, run.data.image, p.graph, p.backend, run.team);
}

std::unique_ptr<record::Dump> MakeDump(const RunContext& run, const SessionParts& p) {
  const config::LogConfig& log = p.config.log;
  if (log.dump_every == 0 && log.dump_on == config::DumpOn::kNever) return nullptr;
  return std::make_unique<record::Dump>(p.config, run.folder, p.graph, p.backend, run.team);
}

// A run does not fail for missing names of classes, because it does not need them itself.
InputFacts FactsForCheckpoints(const RunContext& run, const SessionParts& p) {
  try {
    return InputFactsOf(p.config, run.data);
  } catch (const DataError& error) {
    run.log.Warning(error.what() + std::string("; checkpoints go without names of classes"));
    return {run.data.image, run.data.mean, run.data.std, {}};
  }
}

std::unique_ptr<record::OperandWhatIf> MakeOperandWhatIf(const RunContext& run,
                                                         const SessionParts& p) {
  if (!p.config.log.has_block_scenarios()) return nullptr;
  return std::make_unique<record::OperandWhatIf>(p.config, p.graph, p.backend, run.team);
}

std::vector<step::StepObserver*> Existing(std::vector<step::StepObserver*> observers) {
  std::erase(observers, nullptr);
  return observers;
}

}  // namespace

// The order of the members is that of their construction: the trainer takes references to the
// batches, the optimizer, the observers and the log, which therefore come before it.
Session::Session(const RunContext& run, const SessionParts& parts,
                 const std::optional<Elapsed>& before, const std::optional<ResumePoint>& from)
    : run_(run),
      p_(parts),
      batches_(step::MakeBatchesOfTeam(
          parts.backend, run.data.train, TrainLoader(parts.config, run.data),
          step::ResidenceOf(parts.config), parts.config, run.team, parts.threads)),
      optimizer_(parts.backend, step::UpdateRuleOf(parts.config),
                 step::OptimizedParameters(parts.config.optimizer, parts.graph),
                 parts.config.train.clip_norm, step::WatchedRoundings(parts.graph)),
      probe_(MakeProbe(run, parts)),
      dump_(MakeDump(run, parts)),
      operand_what_if_(MakeOperandWhatIf(run, parts)),
      distributed_(parts.config, run.team, parts.graph, parts.backend),
      step_log_(parts.config, parts.graph, std::string(parts.policy.name()), recorder_, run.log,
                probe_.get(), operand_what_if_.get(), run.team),
      steps_per_epoch_(batches_->batches_per_epoch()),
      total_steps_(step::TotalSteps(parts.config, steps_per_epoch_)),
      trainer_(parts.config, parts.graph, *batches_, parts.policy, optimizer_, step_log_,
               Existing({probe_.get(), dump_.get(), operand_what_if_.get()}), total_steps_,
               distributed_, run.team),
      evaluator_(parts.config, run.data.image, parts.backend, &parts.graph),
      progress_(run.log, run.progress),
      input_facts_(FactsForCheckpoints(run, parts)),
      start_(before ? before->start : telemetry::SteadySeconds()),
      last_timing_(telemetry::SteadySeconds()) {
  if (before) training_seconds_ = before->training_seconds, images_ = before->images;
  if (KeepsAverage(p_.config))
    average_ = std::make_unique<WeightAverage>(p_.config, run_.data.image, p_.backend, p_.graph);
  if (MeasuresClasses(p_.config.task)) class_names_ = NamesOfClasses(p_.config, run_.data);
  // The statistics of the trained weights are found with the training graph itself; the average has
  // parameters of its own, and so needs a second graph that trains.
  if (RecomputesNorms(p_.config)) {
    if (!EvaluatesAverage(p_.config) ||
        p_.config.evaluate.weights != config::EvaluatedWeights::kEma)
      norms_ =
          std::make_unique<NormStatistics>(p_.config, run_.data, p_.graph, p_.backend, run_.team);
    if (EvaluatesAverage(p_.config)) {
      average_graph_ =
          StatisticsGraph(p_.config, run_.data.image, p_.backend, average_->graph(), run_.team);
      average_norms_ = std::make_unique<NormStatistics>(p_.config, run_.data, *average_graph_,
                                                        p_.backend, run_.team);
    }
  }
  // A fresh run: the start of the scale looks at initialized weights, and the average begins with
  // the masters as they are kept, so both come in this order.
  if (!from) {
    const graph::WeightsCover cover =
        graph::Initialize(p_.graph, p_.config.model.init, p_.config.seed, p_.backend);
    if (!cover.missing.empty()) run_.log.Warning(cover.MissingText());
    if (!cover.ignored.empty()) run_.log.Info(cover.IgnoredText());
    if (!cover.skipped.empty()) run_.log.Info(cover.SkippedText());
    if (p_.policy.AwaitsStart()) ChooseStart();
    optimizer_.RoundMasters();
    if (average_) average_->Start();
    return;
  }
  Restore(*from);
}

// init_scale: auto. The forward pass that it takes leaves no trace.
void Session::ChooseStart() {
  const double largest =
      LargestLogitGradient(p_.config, run_.data, p_.graph, p_.backend, run_.team);
  start_scale_ = scaling::ChooseStart(p_.config.scaling, largest, NarrowestGradient(p_.graph));
  p_.policy.Start(start_scale_->scale);
  graph::Initialize(p_.graph, p_.config.model.init, p_.config.seed, p_.backend);
}

// Reports go first, then the loop; what follows depends on how the loop ended. A checkpoint is
// written in every case, so that each end can be gone on from.
std::optional<int> Session::Run() {
  // The first process alone has read the logs of a run that is resumed.
  evaluated_step_ = parallel::GatherAll(run_.team.all(), evaluated_step_).front();
  ReportStart();
  LogDiagnostics();
  const bool may_reside = p_.graph.label_memory() != nullptr &&
                          step::ResidenceOf(p_.config) == step::Residence::kAnywhere;
  // Several processes make their parts of batches on the host in any case.
  if (may_reside && !batches_->resident() && run_.team.ranks() == 1)
    run_.log.Info("training images stay on the host: " +
                  (batches_->why_on_host().empty()
                       ? "they would take more than half of the device's free memory"
                       : batches_->why_on_host()) +
                  (batches_->as_bytes() ? "; they go to the device as bytes" : ""));
  if (EvaluationMissing()) {
    EvaluateAll();
    if (CheckpointDue(trainer_.steps())) Checkpoint();
  }
  const End end = Loop();
  if (end == End::kFinished || end == End::kTime) {
    // A kill within the last evaluation costs no step of training. A run that is extended later
    // keeps this evaluation, and `best` with it.
    if (checkpoint_step_ != trainer_.steps()) Checkpoint();
    if (evaluated_step_ != trainer_.steps()) {
      EvaluateAll();
      Checkpoint();
    }
    if (writes()) recorder_.Sync();
    progress_.Clear();
    const bool read = Summarize(end == End::kFinished ? telemetry::RunStatus::kFinished
                                                      : telemetry::RunStatus::kStopped);
    return read ? 0 : 128 + SIGPIPE;
  }
  if (checkpoint_step_ != trainer_.steps()) Checkpoint();
  progress_.Clear();
  if (end == End::kSwitch) {
    run_.team.AllGatherText("");  // nobody reads before it is written
    return std::nullopt;
  }
  if (end != End::kSignal) FailTraining(end);
  Summarize(telemetry::RunStatus::kInterrupted);
  const int signal = signal_;
  const std::string why = signal == SIGPIPE ? "by a closed pipe: nobody reads the output any more"
                                            : "by signal " + std::to_string(signal);
  run_.log.Info("stopped " + why + "; after step " + std::to_string(trainer_.steps()) +
                ", go on with: " + ResumeCommand());
  return 128 + signal;
}

std::string Session::ResumeCommand() const {
  return run_.team.launcher() + ShellWord(run_.program) + " train --resume " +
         ShellPath(run_.folder);
}

void Session::FailTraining(End end) {
  Summarize(telemetry::RunStatus::kStopped);
  if (end == End::kPolicy)
    throw TrainingError("stopped by policy " + std::string(p_.policy.name()) + " at step " +
                        std::to_string(trainer_.steps()) + ": " + policy_end_);
  const telemetry::FirstNotFinite first =
      recorder_.run().finiteness().first(telemetry::FindLostFromTheStart(recorder_.layers()));
  throw TrainingError(
      "stopped: " + std::to_string(trainer_.skips_in_a_row()) +
      " steps in a row were skipped at step " + std::to_string(trainer_.steps()) +
      " (train.stop_after_skips: " + std::to_string(p_.config.train.stop_after_skips) +
      "), as events.csv tells; first: " + telemetry::NameText(first) + ": " +
      telemetry::AdviceText(first) +
      (telemetry::IsOfScale(first) && first.cause == telemetry::NotFiniteCause::kNone
           ? " (scaling.scale, scaling.init_scale)"
           : "") +
      "; what to change: ada-train advise " + ShellPath(run_.folder));
}

// The order of the checks after a step is a promise: the policy's end comes before an evaluation is
// begun, evaluations come before the checkpoint of the same step, which holds their best score, and
// signals are looked at only when the step has left a consistent state.
Session::End Session::Loop() {
  const std::int64_t last =
      std::min(total_steps_, config::LastStepAsAt(run_.config.precision, trainer_.steps() + 1));
  while (trainer_.steps() < last) {
    const step::StepResult r = trainer_.Step();
    images_ += r.images;
    timed_images_ += r.images;
    skipped_ += r.skipped ? 1 : 0;
    if (average_ && !r.skipped) average_->AfterUpdate(optimizer_.updates());
    NoteBroken("train", BrokenOfAll(batches_->broken()));
    ShowProgress(r);
    if (r.logged) Timing(r);
    if (r.logged || images_ == r.images) LogDiagnostics();
    if (!r.error.empty()) {
      policy_end_ = r.error;
      return End::kPolicy;
    }
    if (r.step % steps_per_epoch_ == 0) progress_.EndEpoch();
    if (EvaluationDue(r.step)) EvaluateAll();
    if (CheckpointDue(r.step)) Checkpoint();
    const StopReason reason = Agreed();
    signal_ = reason.signal;
    if (signal_ != 0) return End::kSignal;
    const std::int64_t most = p_.config.train.stop_after_skips;
    if (most > 0 && trainer_.skips_in_a_row() >= most) return End::kSkips;
    if (reason.time_is_up) return trainer_.steps() < total_steps_ ? End::kTime : End::kFinished;
  }
  return last < total_steps_ ? End::kSwitch : End::kFinished;
}

// Collective: all processes leave the loop after the same step, although a signal, or the end of
// the time, may have been seen by only one of them. The signal of the lowest rank that has one
// counts.
Session::StopReason Session::Agreed() const {
  const double limit = p_.config.train.max_minutes * 60;
  const StopReason mine{run_.signals.signal(), limit > 0 && Seconds() >= limit};
  StopReason agreed;
  for (const StopReason& one : parallel::GatherAll(run_.team.all(), mine)) {
    if (agreed.signal == 0) agreed.signal = one.signal;
    agreed.time_is_up = agreed.time_is_up || one.time_is_up;
  }
  return agreed;
}

bool Session::EvaluationDue(std::int64_t step) const {
  const int every = p_.config.evaluate.every_epochs;
  return every > 0 && step % (steps_per_epoch_ * every) == 0;
}
// The last step of a run always has a checkpoint, whatever the intervals are.
bool Session::CheckpointDue(std::int64_t step) const {
  const config::CheckpointConfig& c = p_.config.checkpoint;
  return (c.every_epochs > 0 && step % (steps_per_epoch_ * c.every_epochs) == 0) ||
         (c.every_steps > 0 && step % c.every_steps == 0) || step == total_steps_;
}

double Session::Seconds() const { return telemetry::SteadySeconds() - start_; }

}  // namespace ada::run
