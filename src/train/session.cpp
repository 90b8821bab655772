// The loop of a run: steps, evaluations and checkpoints where they are due, and how it ends.
#include "train/session.h"

#include <algorithm>
#include <cmath>
#include <csignal>

#include "config/load.h"
#include "core/error.h"
#include "core/shell_path.h"
#include "core/text.h"
#include "telemetry/language.h"
#include "telemetry/top_five.h"

namespace ada::train {

std::optional<int> Session::Run() {
  ReportStart();
  LogDiagnostics();
  const bool may_reside =
      p_.graph.label_memory() != nullptr && ResidenceOf(p_.config) == Residence::kAnywhere;
  if (may_reside && !batches_->resident())
    p_.log.Info("training images stay on the host: " +
                (batches_->why_on_host().empty()
                     ? "they would take more than half of the device's free memory"
                     : batches_->why_on_host()) +
                (batches_->as_bytes() ? "; they go to the device as bytes" : ""));
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
    p_.team.AllGatherText("");  // nobody reads before it is written
    return std::nullopt;
  }
  if (end != End::kSignal) FailTraining(end);
  Summarize(telemetry::RunStatus::kInterrupted);
  const int signal = signal_;
  const std::string why = signal == SIGPIPE ? "by a closed pipe: nobody reads the output any more"
                                            : "by signal " + std::to_string(signal);
  p_.log.Info("stopped " + why + "; after step " + std::to_string(trainer_.steps()) +
              ", go on with: " + ResumeCommand());
  return 128 + signal;
}

std::string Session::ResumeCommand() const {
  return p_.team.launcher() + ShellWord(p_.program) + " train --resume " + ShellPath(p_.folder);
}

void Session::FailTraining(End end) {
  Summarize(telemetry::RunStatus::kStopped);
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
  const std::int64_t last =
      std::min(total_steps_, config::LastStepAsAt(p_.whole.precision, trainer_.steps() + 1));
  while (trainer_.steps() < last) {
    const StepResult r = trainer_.Step();
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
    if (EvaluationDue(r)) EvaluateAll();
    if (CheckpointDue(r)) Checkpoint();
    const Outside outside = Agreed();
    signal_ = outside.signal;
    if (signal_ != 0) return End::kSignal;
    const std::int64_t most = p_.config.train.stop_after_skips;
    if (most > 0 && trainer_.skips_in_a_row() >= most) return End::kSkips;
    if (outside.time_is_up) return trainer_.steps() < total_steps_ ? End::kTime : End::kFinished;
  }
  return last < total_steps_ ? End::kSwitch : End::kFinished;
}

Session::Outside Session::Agreed() const {
  const double limit = p_.config.train.max_minutes * 60;
  const Outside mine{p_.signals.signal(), limit > 0 && Seconds() >= limit};
  Outside agreed;
  for (const Outside& one : backend::GatherAll(p_.team.all(), mine)) {
    if (agreed.signal == 0) agreed.signal = one.signal;
    agreed.time_is_up = agreed.time_is_up || one.time_is_up;
  }
  return agreed;
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
  GatherLayerStates();
  if (norms_) RecomputeNorms(*norms_, "");
  if (average_norms_) RecomputeNorms(*average_norms_, " of the average");
  EvaluateSplits();
  // Checkpoints hold the running averages.
  if (average_norms_) average_norms_->Restore();
  if (norms_) {
    norms_->Restore();
    trainer_.WeightsWereRead();
  }
  if (best_due_) WriteState(p_.folder + "/checkpoints/best");
  best_due_ = false;
  if (writes()) recorder_.Flush();
  LogDiagnostics();
  progress_.Pause();
}

void Session::RecomputeNorms(NormStatistics& norms, const std::string& of) {
  NoteBroken("train", BrokenOfAll(norms.RecomputeShown(p_.log, p_.progress, of)));
}

void Session::EvaluateSplits() {
  const bool held_back = p_.data.validation.images() > 0;
  if (held_back) EvaluateSplit("validation", p_.data.validation, true);
  if (p_.data.test.images() > 0) EvaluateSplit("test", p_.data.test, !held_back);
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
  const std::unique_ptr<Metrics> metrics =
      MakeMetrics(p_.config, p_.data.image, evaluator.graph().classes(), dataset, class_names_);
  const EvaluationResult e = [&] {
    telemetry::EvaluationProgress progress(p_.log, p_.progress, "evaluating " + split,
                                           dataset.images(), telemetry::SteadySeconds,
                                           TokensOfSample());
    EvaluationCallbacks callbacks;
    callbacks.metrics = metrics.get();
    const std::int64_t ranks = p_.team.ranks();
    callbacks.after_batch = [&](std::int64_t images) {
      progress.Update(std::min(images * ranks, dataset.images()));
    };
    return evaluator.Run(dataset, EvaluationLoader(p_.config, p_.data), callbacks, p_.team);
  }();
  NoteBroken(split, BrokenOfAll(e.broken));
  if (metrics) JoinMetrics(p_.team, *metrics);
  if (!writes()) return;
  const std::int64_t epoch = (trainer_.steps() - 1) / steps_per_epoch_ + 1;
  recorder_.Evaluation({trainer_.steps(), epoch, split, e.images, e.loss, e.top1, e.top5});
  double score = e.top1;
  std::string hits = Formatted("top-1 %.2f%%", 100 * e.top1);
  if (telemetry::TopFiveTells(evaluator.graph().classes()))
    hits += Formatted("  top-5 %.2f%%", 100 * e.top5);
  if (TokensOfSample() > 0) hits = TextHits(e);
  if (metrics) {
    const MetricsResult metrics_result = metrics->Finish();
    RecordMetrics(split, metrics_result);
    score = metrics_result.score();
    hits.clear();
    for (const telemetry::Metric& metric : telemetry::MetricsOf(metrics_result.all()))
      hits += (hits.empty() ? "" : "  ") +
              (metric.name + Formatted(" %.2f%%", telemetry::Printable(100 * metric.value)));
  }
  std::string loss = Formatted("%.4f", telemetry::Printable(e.loss));
  if (p_.config.task == Task::kDetection)
    loss += Formatted(" (locations %.4f, classes %.4f)", telemetry::Printable(e.location_loss),
                      telemetry::Printable(e.loss - e.location_loss));
  p_.log.Info("epoch " + std::to_string(epoch) + "  " + split + ": loss " + loss + "  " + hits +
              "  (" + std::to_string(e.images) +
              (TokensOfSample() > 0 ? " sequences)" : " images)"));
  // What is larger for a smaller loss, and never negative.
  if (DecidesByLoss(p_.config)) score = std::exp(-e.loss);
  if (decides_best) DecideBest(score);
}

std::string Session::TextHits(const EvaluationResult& e) const {
  const std::string bits =
      TokensAreBytes(p_.config)
          ? Formatted("%.4f bits per byte  ", telemetry::Printable(telemetry::Bits(e.loss)))
          : "";
  return bits + Formatted("perplexity %.4g  accuracy %.2f%%",
                          telemetry::Printable(telemetry::Perplexity(e.loss)), 100 * e.top1);
}

void Session::RecordMetrics(const std::string& split, const MetricsResult& metrics_result) {
  const std::int64_t step = trainer_.steps(), epoch = (step - 1) / steps_per_epoch_ + 1;
  for (telemetry::ClassRow row : metrics_result.classes) {
    row.step = step, row.epoch = epoch, row.split = split;
    recorder_.Classes(row);
  }
  for (telemetry::ConfusionRow row : metrics_result.confusion) {
    row.step = step, row.epoch = epoch, row.split = split;
    recorder_.Confusion(row);
  }
}

void Session::DecideBest(double score) {
  if (!p_.config.checkpoint.best || !(score > best_top1_)) return;
  best_top1_ = score;
  if (norms_ || average_norms_)
    best_due_ = true;  // statistics of the evaluation are where the running averages belong
  else
    WriteState(p_.folder + "/checkpoints/best");
}

double Session::Seconds() const { return telemetry::SteadySeconds() - start_; }

}  // namespace ada::train
