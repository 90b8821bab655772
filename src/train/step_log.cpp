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
  s.above_edge += b.above_edge;
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

void StepLog::Write(const StepResult& r, const scaling::Verdict& verdict) {
  recorder_.Step(
      {r.step, r.epoch, r.loss, r.accuracy, r.lr, r.scale, r.overflow, r.skipped, r.grad_norm});
  if (r.logged) WriteCounts(r);
  WriteEvents(r, verdict);
  if (r.logged) recorder_.Flush();
}

void StepLog::CountEdge(scaling::Attempt& attempt) const {
  const auto& points = graph_.roundings();
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (points[i].tensor != "dx") continue;
    const TensorStats& s = StatsOf(i);
    attempt.above += s.above_edge;
    attempt.below += s.numel - s.above_edge;
  }
}

void StepLog::NoteLayers(scaling::Attempt& attempt) const {
  std::string last;  // of the forward order: the logit gradient carries its S
  bool any = false;
  for (const graph::ScalePoint& point : graph_.scales()) {
    if (point.scaler == nullptr) continue;
    if (last.empty()) last = point.layer;
    attempt.layer_overflow[point.layer] = false;
  }
  const auto& points = graph_.roundings();
  for (std::size_t i = 0; i < points.size(); ++i) {
    const graph::RoundingPoint& p = points[i];
    if (p.tensor != "dx" && p.tensor != "dw") continue;
    const auto layer = attempt.layer_overflow.find(p.layer == "loss" ? last : p.layer);
    if (layer == attempt.layer_overflow.end()) continue;
    if (std::isfinite(RoundTo(p.format, StatsOf(i).max_abs))) continue;
    layer->second = any = true;
  }
  if (!attempt.overflow || any) return;
  for (auto& layer : attempt.layer_overflow) layer.second = true;
}

std::string StepLog::DecisionErrors() const {
  for (const graph::ScalePoint& point : graph_.scales()) {
    const scaling::DecisionError error = point.decision->error;
    if (error == scaling::DecisionError::kNone) continue;
    return "layer " + point.layer + ": " + scaling::DecisionErrorText(error) +
           " (scaling.reference: true ends the run there, as the original does)";
  }
  return "";
}

void StepLog::WriteCounts(const StepResult& r) {
  for (const graph::ScalePoint& point : graph_.scales())
    recorder_.Scale(r.step, r.epoch, point.layer, policy_, *point.decision);
  const auto& wanted = config_.log.statistics;
  const auto& points = graph_.roundings();
  for (std::size_t i = 0; i < points.size(); ++i) {
    const graph::RoundingPoint& p = points[i];
    if (std::find(wanted.begin(), wanted.end(), p.tensor) == wanted.end()) continue;
    const double carried = p.scale != nullptr ? static_cast<double>(*p.scale) : 1.0;
    const double own = p.scaler != nullptr ? static_cast<double>(p.scaler->scale) : 1.0;
    recorder_.Underflow(r.step, r.epoch, p.layer, p.tensor, p.format, carried * own, StatsOf(i));
  }
}

void StepLog::Event(const StepResult& r, const std::string& name, const Culprit& at,
                    const std::string& message) {
  recorder_.Event({r.step, r.epoch, name, at.layer, at.tensor, at.value, message});
}

void StepLog::WriteOverflow(const StepResult& r) {
  const Culprit first = FirstNotFinite();
  const std::string where = first.layer.empty() ? "no rounded tensor: a product or the loss itself"
                                                : first.layer + "." + first.tensor +
                                                      " (largest magnitude " + first.value + ")";
  const char* what = r.retried     ? "the next batch tries the same update"
                     : r.skipped   ? "step skipped"
                     : r.sanitized ? "updated without them"
                                   : "updated all the same";
  const std::string message =
      std::string("gradients are not finite, ") + what + "; first: " + where;
  Event(r, r.retried ? "retry" : r.skipped ? "skip" : "sanitize", first, message);
  log_.Info("step " + std::to_string(r.step) + ": " + message + "; S = " + ShortestText(r.scale));
}

void StepLog::WriteEvents(const StepResult& r, const scaling::Verdict& verdict) {
  for (const graph::ScalePoint& point : graph_.scales()) {
    if (point.decision->halvings == 0) continue;
    Event(r, "branch_halved", {point.layer, "dy", ShortestText(point.decision->scale_out)},
          "the sum of the branches left the range of the format; their common scale was halved " +
              std::to_string(point.decision->halvings) + " times");
  }
  if (r.overflow) WriteOverflow(r);
  if (verdict.before != verdict.after) {
    const std::string change = "scale " + ShortestText(verdict.before) + " -> " +
                               ShortestText(verdict.after) + ": " + verdict.reason;
    Event(r, "scale_change", {"", "", ShortestText(verdict.after)}, change);
    log_.Debug("step " + std::to_string(r.step) + ": " + change);
  }
  if (!r.error.empty()) Event(r, "policy_end", {}, r.error);
}

}  // namespace ada::train
