// Rows of a step; see step_log.h.
#include "train/step_log.h"

#include <algorithm>
#include <cmath>

#include "core/text.h"
#include "train/trainer.h"

namespace ada::train {

TensorStats Combine(const TensorStats& a, const TensorStats& b) {
  TensorStats s = a;
  s.numel += b.numel;
  s.zeros_before += b.zeros_before;
  s.zeros_after += b.zeros_after;
  s.underflow += b.underflow;
  s.below_min += b.below_min;
  s.subnormal += b.subnormal;
  s.overflow += b.overflow;
  s.inf += b.inf;
  s.nan += b.nan;
  s.min_abs = a.min_abs == 0   ? b.min_abs
              : b.min_abs == 0 ? a.min_abs
                               : std::min(a.min_abs, b.min_abs);
  s.max_abs = std::isnan(a.max_abs) || a.max_abs > b.max_abs ? a.max_abs : b.max_abs;
  const auto na = static_cast<double>(a.numel), nb = static_cast<double>(b.numel);
  if (na + nb > 0) {
    const double d = b.mean - a.mean;
    s.mean = (a.mean * na + b.mean * nb) / (na + nb);
    s.std = std::sqrt((a.std * a.std * na + b.std * b.std * nb + d * d * na * nb / (na + nb)) /
                      (na + nb));
  }
  s.l1 = a.l1 + b.l1;
  s.l2 = std::sqrt(a.l2 * a.l2 + b.l2 * b.l2);
  return s;
}

StepLog::StepLog(const config::Config& config, const graph::Graph& graph, const std::string& policy,
                 telemetry::Recorder& recorder, telemetry::Log& log)
    : config_(config), graph_(graph), policy_(policy), recorder_(recorder), log_(log) {}

bool StepLog::Logs(std::int64_t step) const {
  return config_.log.every > 0 && (step == 1 || step % config_.log.every == 0);
}

bool StepLog::Counts(std::int64_t step) const {
  return Logs(step) && !config_.log.statistics.empty();
}

void StepLog::AddMicroBatch(bool first) {
  const auto& points = graph_.roundings();
  if (first) sums_.assign(points.size(), TensorStats{});
  for (std::size_t i = 0; i < points.size(); ++i) {
    // A weight and its gradient exist once a batch, whatever the micro-batches.
    const bool once = points[i].tensor == "w" || points[i].tensor == "dw";
    sums_[i] = first || once ? *points[i].stats : Combine(sums_[i], *points[i].stats);
  }
}

const TensorStats& StepLog::StatsOf(std::size_t point) const {
  return sums_.empty() ? *graph_.roundings()[point].stats : sums_[point];
}

// The first rounding, in the order of execution, whose largest magnitude is or becomes infinite.
StepLog::Culprit StepLog::FirstNotFinite() const {
  const auto& points = graph_.roundings();
  for (std::size_t i = 0; i < points.size(); ++i) {
    const float largest = StatsOf(i).max_abs;
    if (!std::isfinite(RoundTo(points[i].format, largest)))
      return {points[i].layer, points[i].tensor, NineDigits(static_cast<double>(largest))};
  }
  return {};
}

void StepLog::Write(const StepResult& r, const scaling::ScaleChange& change) {
  recorder_.Step(
      {r.step, r.epoch, r.loss, r.accuracy, r.lr, r.scale, r.overflow, r.skipped, r.grad_norm});
  if (r.logged) WriteCounts(r);
  WriteEvents(r, change);
  if (r.logged) recorder_.Flush();
}

void StepLog::WriteCounts(const StepResult& r) {
  for (const graph::ScalePoint& point : graph_.scales())
    recorder_.Scale(r.step, r.epoch, point.layer, policy_, *point.decision);
  const auto& wanted = config_.log.statistics;
  const auto& points = graph_.roundings();
  for (std::size_t i = 0; i < points.size(); ++i) {
    const graph::RoundingPoint& p = points[i];
    if (std::find(wanted.begin(), wanted.end(), p.tensor) == wanted.end()) continue;
    recorder_.Underflow(r.step, r.epoch, p.layer, p.tensor, p.format,
                        p.scale != nullptr ? static_cast<double>(*p.scale) : 1.0, StatsOf(i));
  }
}

void StepLog::WriteEvents(const StepResult& r, const scaling::ScaleChange& change) {
  auto event = [&](const std::string& name, const Culprit& at, const std::string& message) {
    recorder_.Event({r.step, r.epoch, name, at.layer, at.tensor, at.value, message});
  };
  for (const graph::ScalePoint& point : graph_.scales()) {
    if (point.decision->halvings == 0) continue;
    event("branch_halved", {point.layer, "dy", ShortestText(point.decision->scale_out)},
          "the sum of the branches left the range of the format; their common scale was halved " +
              std::to_string(point.decision->halvings) + " times");
  }
  if (r.skipped) {
    const Culprit first = FirstNotFinite();
    const std::string where =
        first.layer.empty()
            ? "no rounded tensor: a product or the loss itself"
            : first.layer + "." + first.tensor + " (largest magnitude " + first.value + ")";
    const std::string message = "gradients are not finite, step skipped; first: " + where;
    event("skip", first, message);
    log_.Info("step " + std::to_string(r.step) + ": " + message + "; S = " + ShortestText(r.scale));
  }
  if (change.before != change.after) {
    event("scale_change", {"", "", ShortestText(change.after)},
          "scale " + ShortestText(change.before) + " -> " + ShortestText(change.after) + ": " +
              change.reason);
    log_.Debug("step " + std::to_string(r.step) + ": scale " + ShortestText(change.before) +
               " -> " + ShortestText(change.after) + ": " + change.reason);
  }
}

}  // namespace ada::train
