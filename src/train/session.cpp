// The loop of a run: steps, evaluations and checkpoints where they are due, and how it ends.
#include "train/session.h"

#include <csignal>
#include <cstdio>

#include "core/error.h"

namespace ada::train {

int Session::Run() {
  ReportStart();
  LogDiagnostics();
  const bool may_reside = p_.graph.label_memory() != nullptr && p_.config.log.probe_every == 0;
  if (may_reside && !batches_.resident())
    p_.log.Info("training images stay on the host: " +
                (batches_.why_on_host().empty()
                     ? "they would take more than half of the device's free memory"
                     : batches_.why_on_host()));
  const End end = Loop();
  if (end == End::kFinished || end == End::kTime) {
    // A kill within the last evaluation costs no step of training. A run that is extended later
    // keeps this evaluation, and `best` with it.
    if (checkpoint_step_ != trainer_.steps()) Checkpoint();
    if (evaluated_step_ != trainer_.steps()) {
      EvaluateAll();
      Checkpoint();
    }
    recorder_.Sync();
    progress_.Clear();
    const bool read = Summarise(end == End::kFinished ? telemetry::RunStatus::kFinished
                                                      : telemetry::RunStatus::kStopped);
    return read ? 0 : 128 + SIGPIPE;
  }
  if (checkpoint_step_ != trainer_.steps()) Checkpoint();
  progress_.Clear();
  if (end != End::kSignal) FailTraining(end);
  Summarise(telemetry::RunStatus::kInterrupted);
  const int signal = signals_.signal();
  const std::string why = signal == SIGPIPE ? "by a closed pipe: nobody reads the output any more"
                                            : "by signal " + std::to_string(signal);
  p_.log.Info("stopped " + why + "; after step " + std::to_string(trainer_.steps()) +
              ", go on with --resume");
  return 128 + signal;
}

void Session::FailTraining(End end) {
  Summarise(telemetry::RunStatus::kStopped);
  if (end == End::kPolicy)
    throw TrainingError("stopped by policy " + std::string(p_.policy.name()) + " at step " +
                        std::to_string(trainer_.steps()) + ": " + policy_end_);
  throw TrainingError(
      "stopped: " + std::to_string(trainer_.skips_in_a_row()) +
      " steps in a row were skipped at step " + std::to_string(trainer_.steps()) +
      " (train.stop_after_skips: " + std::to_string(p_.config.train.stop_after_skips) +
      "); gradients overflow at every scale tried: events.csv names the first layer. Try a smaller "
      "scale (scaling.scale, scaling.init_scale), a smaller optimizer.lr, or a format with more "
      "range");
}

Session::End Session::Loop() {
  const double limit = p_.config.train.max_minutes * 60;
  while (trainer_.steps() < total_steps_) {
    const StepResult r = trainer_.Step();
    images_ += r.images;
    timed_images_ += r.images;
    skipped_ += r.skipped ? 1 : 0;
    if (average_ && !r.skipped) average_->AfterUpdate(optimizer_.updates());
    NoteBroken("train", p_.data.train, batches_.broken());
    ShowProgress(r);
    if (r.logged) Timing(r);
    if (r.logged || images_ == r.images) LogDiagnostics();
    if (!r.error.empty()) {
      policy_end_ = r.error;
      return End::kPolicy;
    }
    if (r.step % steps_per_epoch_ == 0) progress_.EndEpoch();
    if (EvaluationDue(r)) EvaluateAll();
    if (CheckpointDue(r)) Checkpoint();
    if (signals_.signal() != 0) return End::kSignal;
    const std::int64_t most = p_.config.train.stop_after_skips;
    if (most > 0 && trainer_.skips_in_a_row() >= most) return End::kSkips;
    if (limit > 0 && Seconds() >= limit)
      return trainer_.steps() < total_steps_ ? End::kTime : End::kFinished;
  }
  return End::kFinished;
}

bool Session::EvaluationDue(const StepResult& r) const {
  const int every = p_.config.evaluate.every_epochs;
  return every > 0 && r.step % (steps_per_epoch_ * every) == 0;
}
bool Session::CheckpointDue(const StepResult& r) const {
  const config::CheckpointConfig& c = p_.config.checkpoint;
  return (c.every_epochs > 0 && r.step % (steps_per_epoch_ * c.every_epochs) == 0) ||
         (c.every_steps > 0 && r.step % c.every_steps == 0) || r.step == total_steps_;
}

void Session::EvaluateAll() {
  progress_.Pause();
  evaluated_step_ = trainer_.steps();
  const bool held_back = p_.data.validation.images() > 0;
  if (held_back) EvaluateSplit("validation", p_.data.validation, true);
  if (p_.data.test.images() > 0) EvaluateSplit("test", p_.data.test, !held_back);
  recorder_.Flush();
  LogDiagnostics();
  progress_.Pause();
}

void Session::EvaluateSplit(const std::string& split, const data::Dataset& dataset,
                            bool decides_best) {
  const bool average = EvaluatesAverage(p_.config);
  if (!average || p_.config.evaluate.weights != config::EvaluatedWeights::kEma)
    EvaluateWith(evaluator_, split, dataset, decides_best && !average);
  if (average) EvaluateWith(average_->evaluator(), split + kAverageSplit, dataset, decides_best);
}

void Session::EvaluateWith(Evaluator& evaluator, const std::string& split,
                           const data::Dataset& dataset, bool decides_best) {
  const EvaluationResult e = [&] {
    telemetry::EvaluationProgress progress(p_.log, p_.progress, split, dataset.images());
    return evaluator.Run(dataset, EvaluationLoader(p_.config, p_.data), {},
                         [&](std::int64_t images) { progress.Update(images); });
  }();
  NoteBroken(split, dataset, e.broken);
  const std::int64_t epoch = (trainer_.steps() - 1) / steps_per_epoch_ + 1;
  recorder_.Evaluation({trainer_.steps(), epoch, split, e.images, e.loss, e.top1, e.top5});
  char text[160];
  std::snprintf(text, sizeof text,
                "epoch %lld  %s: loss %.4f  top-1 %.2f%%  top-5 %.2f%%  (%lld images)",
                static_cast<long long>(epoch), split.c_str(), telemetry::Printable(e.loss),
                100 * e.top1, 100 * e.top5, static_cast<long long>(e.images));
  p_.log.Info(text);
  if (!p_.config.checkpoint.best || !decides_best || !(e.top1 > best_top1_)) return;
  best_top1_ = e.top1;
  WriteState(p_.folder + "/checkpoints/best");
}

double Session::Seconds() const { return telemetry::SteadySeconds() - start_; }

}  // namespace ada::train
