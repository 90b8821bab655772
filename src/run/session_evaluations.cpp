// The evaluations of a session: of each split, with the network's weights or their average, and
// which of them is the best.
#include <algorithm>
#include <cmath>

#include "config/load.h"
#include "io/text.h"
#include "run/metrics/metrics.h"
#include "run/session.h"
#include "telemetry/progress_text.h"

namespace ada::run {

// What an evaluation fails in must not cost the training before it: the weights of the step are
// written before the error goes on its way, together with the logs as they were before the
// evaluation. One of several processes may be stopped by the error of another, so that there the
// checkpoint comes first.
void Session::EvaluateAll() {
  progress_.Pause();
  GatherLayerStates();
  if (run_.team.ranks() > 1 && checkpoint_step_ != trainer_.steps()) Checkpoint();
  const std::map<std::string, std::int64_t> lengths =
      writes() ? recorder_.Sync() : std::map<std::string, std::int64_t>();
  const double best = best_top1_;
  try {
    EvaluateUnguarded();
  } catch (...) {
    best_top1_ = best;
    KeepWeights(lengths);
    throw;
  }
}

// Where batch norm statistics are recomputed they replace the running averages for the time that
// this takes; a checkpoint of the best weights is therefore delayed until the averages are back.
void Session::EvaluateUnguarded() {
  evaluated_step_ = trainer_.steps();
  if (average_) average_->TakeScales();
  if (norms_) RecomputeNorms(*norms_, "");
  if (average_norms_) RecomputeNorms(*average_norms_, " of the average");
  EvaluateSplits();
  RestoreNorms();
  if (best_due_) WriteState(run_.folder + "/checkpoints/best");
  best_due_ = false;
  if (writes()) recorder_.Flush();
  LogDiagnostics();
  progress_.Pause();
}

void Session::RecomputeNorms(NormStatistics& norms, const std::string& of) {
  replaced_norms_.push_back(&norms);
  NoteBroken("train", BrokenOfAll(norms.RecomputeShown(run_.log, run_.progress, of)));
}

// Checkpoints hold the running averages.
void Session::RestoreNorms() {
  for (NormStatistics* norms : replaced_norms_) norms->Restore();
  replaced_norms_.clear();
}

// Whether the step's evaluation is still to be made: a run that is resumed where one failed.
bool Session::EvaluationMissing() const {
  const std::int64_t step = trainer_.steps();
  const bool any = run_.data.validation.images() > 0 || run_.data.test.images() > 0;
  return any && step > 0 && step < total_steps_ && EvaluationDue(step) && evaluated_step_ != step;
}

// The validation split chooses the best weights where there is one, else the test split does.
void Session::EvaluateSplits() {
  const bool held_back = run_.data.validation.images() > 0;
  if (held_back) EvaluateSplit("validation", run_.data.validation, true);
  if (run_.data.test.images() > 0) EvaluateSplit("test", run_.data.test, !held_back);
}

// Judges a split with the trained weights, with their average, or with both (evaluate.weights).
// Where the average is judged it is the one that decides the best.
void Session::EvaluateSplit(const std::string& split, const data::Dataset& dataset,
                            bool decides_best) {
  const bool average = EvaluatesAverage(p_.config);
  if (!average || p_.config.evaluate.weights != config::EvaluatedWeights::kEma)
    EvaluateWith(evaluator_, split, dataset, decides_best && !average);
  if (average) EvaluateWith(average_->evaluator(), split + kAverageSplit, dataset, decides_best);
}

// Collective. All processes judge their part of the split; the first one joins the parts, records
// the row and prints the line.
void Session::EvaluateWith(Evaluator& evaluator, const std::string& split,
                           const data::Dataset& dataset, bool decides_best) {
  const std::unique_ptr<Metrics> metrics =
      MakeMetrics(p_.config, run_.data.image, evaluator.graph().classes(), dataset, class_names_);
  const EvaluationResult e = [&] {
    telemetry::EvaluationProgress progress(run_.log, run_.progress, "evaluating " + split,
                                           dataset.images(), telemetry::SteadySeconds,
                                           TokensOfSample());
    EvaluationCallbacks callbacks;
    callbacks.metrics = metrics.get();
    // Parts are of about one size: the progress of all is estimated by this process's own.
    const std::int64_t ranks = run_.team.ranks();
    callbacks.after_batch = [&](std::int64_t images) {
      progress.Update(std::min(images * ranks, dataset.images()));
    };
    return evaluator.Run(dataset, EvaluationLoader(p_.config, run_.data), callbacks, run_.team);
  }();
  NoteBroken(split, BrokenOfAll(e.broken));
  if (metrics) JoinMetrics(run_.team, *metrics);
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
  run_.log.Info("epoch " + std::to_string(epoch) + "  " + split + ": loss " + loss + "  " + hits +
                "  (" + std::to_string(e.images) +
                (TokensOfSample() > 0 ? " sequences)" : " images)"));
  // A number that grows as the loss falls, and is never negative.
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

// The comparison is written so that a score that is NaN is never the best.
void Session::DecideBest(double score) {
  if (!p_.config.checkpoint.best || !(score > best_top1_)) return;
  best_top1_ = score;
  if (norms_ || average_norms_)
    best_due_ = true;  // statistics of the evaluation are where the running averages belong
  else
    WriteState(run_.folder + "/checkpoints/best");
}

}  // namespace ada::run
