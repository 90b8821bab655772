// Each function compares the step with the recorder's knowledge of the run so far, and adds a row
// (Add) and a line (WriteLine) if something has changed.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "config/derived.h"
#include "io/tensor_names.h"
#include "io/text.h"
#include "record/step_log.h"
#include "scaling/policies/policy.h"
#include "telemetry/csv.h"
#include "telemetry/not_finite.h"

namespace ada::record {

void RepeatedNotes::Say(std::int64_t step, const std::string& message) {
  log_.Info("step " + std::to_string(step) + ": " + message);
}

void RepeatedNotes::Add(const std::string& kind, std::int64_t step, const std::string& message) {
  const auto [at, is_first] = windows_.try_emplace(kind);
  Window& window = at->second;
  if (is_first) {
    window = {step, kFirstWindow, 0, step, ""};
    Say(step, message);
    return;
  }
  ++window.counted;
  window.last_step = step;
  window.last = message;
}

// A window that ends with counted messages is followed by one twice as long, so that a message that
// comes in every step is printed more and more rarely.
void RepeatedNotes::EndStep(std::int64_t step) {
  for (auto at = windows_.begin(); at != windows_.end();) {
    Window& window = at->second;
    if (step - window.begin < window.length) {
      ++at;
    } else if (window.counted == 0) {
      at = windows_.erase(at);
    } else {
      Say(window.last_step, window.last + " (" + std::to_string(window.counted) +
                                (window.counted == 1 ? " more time" : " more times") +
                                " since step " + std::to_string(window.begin) + ")");
      window = {step, 2 * window.length, 0, step, ""};
      ++at;
    }
  }
}

namespace {

// Three digits are enough in a message; the event's value has nine.
std::string Brief(double value) { return Formatted("%.3g", value); }

// Scales are numbers of fp32, and a bound need not be one.
bool IsAt(double scale, double bound) {
  return scale == bound || scale == static_cast<double>(static_cast<float>(bound));
}

telemetry::FirstNotFinite AsFirst(const step::StepResult& r, const EventTensor& first) {
  return {first.layer, first.tensor, first.value, r.scale, r.step, first.cause, {}};
}

// Why an upper bound cut a layer's scale, or nothing.
std::string CeilingText(scaling::Limit limit) {
  switch (limit) {
    case scaling::Limit::kScaleBound:
      return "alpha is cut by scaling.scale_upper_bound";
    case scaling::Limit::kAccumBound:
      return "the scale is cut by scaling.accum_upper_bound";
    default:
      return "";
  }
}

}  // namespace

void StepEvents::Add(const step::StepResult& r, const std::string& name, const EventTensor& at,
                     const std::string& message) {
  recorder_.Event({r.step, r.epoch, name, at.layer, at.tensor, at.value, message});
}

void StepEvents::WriteLine(const step::StepResult& r, const std::string& message) {
  log_.Info("step " + std::to_string(r.step) + ": " + message);
}

void StepEvents::Loss(const step::StepResult& r, const EventTensor& first) {
  const telemetry::RunTotals& before = recorder_.run();
  if (std::isfinite(r.loss) || (before.steps() > 0 && !std::isfinite(before.last().loss))) return;
  telemetry::FirstNotFinite tensor = AsFirst(r, first);
  tensor.lost = telemetry::FindLostFromTheStart(recorder_.layers());
  const std::string message = "the loss is not finite; first: " + telemetry::NameText(tensor) +
                              ": " + telemetry::AdviceText(tensor);
  Add(r, "loss_not_finite", {"loss", "", NineDigits(r.loss)}, message);
  WriteLine(r, message);
}

void StepEvents::Targets(const step::StepResult& r) {
  if (config_.task != Task::kLanguage || r.terms > 0) return;
  const std::string message =
      "no token of the batch has a target (all are -100): its loss and its gradients are given as "
      "0, and nothing is learned of it";
  Add(r, "no_targets", {"loss", "", "0"}, message);
  WriteLine(r, message);
}

// The rate is compared as the log has it, rounded, since after a resumption only that is known of
// the step before.
void StepEvents::LearningRate(const step::StepResult& r) {
  const telemetry::RunTotals& before = recorder_.run();
  if (before.steps() == 0 || before.last().lr == telemetry::AsLogged(r.lr)) return;
  if (r.rate_moves && before.last().epoch == r.epoch) return;
  const std::string message =
      "learning rate " + NineDigits(before.last().lr) + " -> " + NineDigits(r.lr);
  Add(r, "lr_change", {"", "", NineDigits(r.lr)}, message);
  WriteLine(r, message);
}

// Only a crossing of the limit is an event; a tensor that stays above it was told of.
bool StepEvents::Underflow(const step::StepResult& r, const CountedTensor& at,
                           const TensorStats& stats) {
  ExplodingState(r, at, stats);
  const double alert = config_.log.alert_underflow_pct, pct = telemetry::UnderflowPct(stats);
  if (alert <= 0 || !(pct > alert)) return false;
  const telemetry::TensorTotals* before = recorder_.layers().FindTensor(at.layer, at.tensor);
  if (before != nullptr && before->last_pct > alert) return false;
  const std::string whole(WholeTensor(at.tensor));
  if (Contains(config::KeptInTheMean(config_.precision), whole)) return false;
  const std::string what = whole == "update" ? " % of its weights' changes vanish in "
                           : at.tensor == "accumulated"
                               ? " % of its gradients' parts vanish in sums in "
                               : " % of its non-zero values underflow in ";
  const std::string message = at.layer + "." + at.tensor + ": " + Brief(pct) + what +
                              at.format.text + " at scale " + ShortestText(at.scale()) +
                              " (log.alert_underflow_pct: " + ShortestText(alert) + ")";
  Add(r, "underflow_alert", {at.layer, at.tensor, NineDigits(pct)}, message);
  WriteLine(r, message);
  return true;
}

// Again only after a row without such pairs. The row of the whole state is left out where there are
// rows of its parts, which name the state.
void StepEvents::ExplodingState(const step::StepResult& r, const CountedTensor& at,
                                const TensorStats& stats) {
  if (stats.zero_denominators <= 0 || at.tensor == "state") return;
  const telemetry::TensorTotals* before = recorder_.layers().FindTensor(at.layer, at.tensor);
  if (before != nullptr && before->last_zero_denominators > 0) return;
  const std::string count = std::to_string(stats.zero_denominators);
  const std::string message =
      at.layer + "." + at.tensor + ": " + count + " of " + std::to_string(stats.numel) +
      " values are zero in " + at.format.text +
      " where the average they divide is not: the next update of these weights is that average / "
      "epsilon; raise optimizer.epsilon, or keep this state in a smaller block or another map "
      "(precision.optimizer_state)";
  Add(r, "exploding_state", {at.layer, at.tensor, count}, message);
  WriteLine(r, message);
}

void StepEvents::Mu(const step::StepResult& r, const step::HalvedMu& halved) {
  const std::string message =
      halved.gradient + ": " + Brief(100 * halved.share) +
      " % of its summed gradient saturate in " +
      FormatName(config_.precision.accumulated_gradients.format) + ", more than " +
      Brief(100 * config_.precision.accumulated_gradients.rule.saturation_limit) + " %: mu " +
      ShortestText(static_cast<double>(halved.before)) + " -> " +
      ShortestText(static_cast<double>(halved.after));
  Add(r, "mu_halved",
      {halved.layer, "accumulated", ShortestText(static_cast<double>(halved.after))}, message);
  repeated_.Add("mu_halved", r.step, message);
}

void StepEvents::Measured(const step::StepResult& r, const step::MeasuredScale& measured) {
  const std::string scale = ShortestText(static_cast<double>(measured.scale));
  std::string message = measured.layer + "." + measured.operand + ": scale " + scale +
                        " of the largest magnitude " +
                        Brief(static_cast<double>(measured.largest)) + ", measured";
  if (measured.steps > 0)
    message += "; predicted " + Brief(static_cast<double>(measured.predicted)) + " after " +
               std::to_string(measured.steps) + (measured.steps == 1 ? " step" : " steps");
  Add(r, "scale_measured", {measured.layer, measured.operand, scale}, message);
}

void StepEvents::Noise(const step::StepResult& r, const std::string& layer,
                       const std::string& tensor, double norm_over_noise,
                       const std::string& of_errors) {
  const double limit = std::sqrt(telemetry::kStallPower);
  if (!(norm_over_noise < limit) || recorder_.layers().NoiseBefore(layer, tensor) < limit) return;
  const std::string message = layer + "." + tensor + ": its norm is " + Brief(norm_over_noise) +
                              " times " + of_errors + "; below sqrt(3) training is said to stall";
  Add(r, "gradient_noise", {layer, tensor, NineDigits(norm_over_noise)}, message);
  WriteLine(r, message);
}

// All layers get a row; the console gets one line for all of them.
void StepEvents::NoGradient(const step::StepResult& r,
                            const std::vector<telemetry::LayerWithoutGradient>& before) {
  std::vector<telemetry::LayerWithoutGradient> fresh;
  for (const telemetry::LayerWithoutGradient& layer :
       telemetry::LayersWithoutGradient(recorder_.layers())) {
    if (std::any_of(before.begin(), before.end(),
                    [&](const auto& known) { return known.layer == layer.layer; }))
      continue;
    const std::string what = layer.tensor == "dx" ? "its gradient is" : "its weight gradient is";
    Add(r, "no_gradient", {layer.layer, layer.tensor, layer.died_at},
        layer.layer + ": all of " + what + " zero; " + telemetry::CauseText(layer));
    fresh.push_back(layer);
  }
  if (!fresh.empty()) WriteLine(r, telemetry::NoGradientText(fresh, 5));
}

// A layer's own state machine that has come to one of its bounds since the last logged step.
void StepEvents::LayerBound(const step::StepResult& r, const graph::ScalePoint& point) {
  if (point.decision->limit != scaling::Limit::kState) return;
  const double now = point.decision->scale_out;
  const telemetry::ScaleTotals* before = recorder_.layers().FindScale(point.layer, false);
  if (before == nullptr || before->last_scale_out == now) return;
  const scaling::LayerwiseSettings s = scaling::LayerwiseOf(config_.scaling, point.layer);
  const bool floor = IsAt(now, s.min_scale);
  if (!floor && !IsAt(now, s.max_scale)) return;
  const std::string message = point.layer + ": its scale is at its " +
                              (floor ? "floor " : "ceiling ") + ShortestText(now) +
                              (floor ? " (scaling.min_scale)" : " (scaling.max_scale)");
  Add(r, floor ? "floor" : "ceiling", {point.layer, "dx", ShortestText(now)}, message);
  WriteLine(r, message);
}

void StepEvents::LayerScale(const step::StepResult& r, const graph::ScalePoint& point) {
  LayerBound(r, point);
  const std::string why = CeilingText(point.decision->limit);
  if (why.empty()) return;
  const telemetry::ScaleTotals* before = recorder_.layers().FindScale(point.layer, false);
  if (before != nullptr && before->limits.contains(scaling::LimitName(point.decision->limit)))
    return;
  const std::string scale = ShortestText(static_cast<double>(point.decision->scale_out));
  const std::string message =
      point.layer + ": " + why + " (for the first time in this run); its scale is " + scale;
  Add(r, "ceiling", {point.layer, "dx", scale}, message);
  WriteLine(r, message);
}

// Every overflow is a row, but on the console repeated ones are counted (RepeatedNotes).
void StepEvents::Overflow(const step::StepResult& r, const EventTensor& first) {
  const std::string where = telemetry::NameText(AsFirst(r, first)) +
                            (first.process.empty() ? "" : " on " + first.process);
  const char* what = r.retried     ? "the next batch tries the same update"
                     : r.skipped   ? "step skipped"
                     : r.sanitized ? "updated without them"
                                   : "updated all the same";
  const std::string cause = telemetry::CauseText(first.cause);
  const std::string message = std::string("gradients are not finite, ") + what +
                              "; first: " + where + (cause.empty() ? "" : "; " + cause);
  const char* name = r.retried ? "retry" : r.skipped ? "skip" : "sanitize";
  Add(r, name, first, message);
  // What carries no S says that of the step.
  const double scale = CarriesS(first.tensor) ? first.carried : r.scale;
  repeated_.Add(name, r.step, message + "; S = " + ShortestText(scale));
}

void StepEvents::Branch(const step::StepResult& r, const graph::ScalePoint& point) {
  if (point.decision->halvings == 0) return;
  const std::string message =
      "the sum of the branches left the range of the format; their common scale was halved " +
      std::to_string(point.decision->halvings) + " times";
  Add(r, "branch_halved", {point.layer, "dy", ShortestText(point.decision->scale_out)}, message);
  repeated_.Add("branch_halved " + point.layer, r.step, point.layer + ": " + message);
}

void StepEvents::EndStep(const step::StepResult& r) { repeated_.EndStep(r.step); }

void StepEvents::Policy(const step::StepResult& r, const scaling::ScaleUpdate& update) {
  const bool stays_nan = std::isnan(update.before) && std::isnan(update.after);
  const bool moves = update.before != update.after && !stays_nan;
  if (moves) {
    const std::string after = ShortestText(update.after);
    const std::string change =
        "scale " + ShortestText(update.before) + " -> " + after + ": " + update.reason;
    Add(r, "scale_change", {"", "", after}, change);
    // A policy that moves its scale with each step would drown everything else.
    const std::string line = "step " + std::to_string(r.step) + ": " + change;
    scale_moved_ ? log_.Debug(line) : log_.Info(line);
    if (update.after == 0) {
      const std::string message = "the scale is 0 for good, since " +
                                  scaling::WhyForGood(update.after) +
                                  ": no later step can train; scaling.min_scale keeps it above 0";
      Add(r, "floor", {"", "", after}, message);
      WriteLine(r, message);
    }
    // A bound of 0 is reported above, with another text.
    const auto bound = [&](const char* name, const char* key, const std::optional<double>& limit,
                           const char* meaning) {
      if (!limit || !IsAt(update.after, *limit) || update.after == 0) return;
      const std::string message =
          "the scale is at its " + std::string(name) + " " + after + " (" + key + "): " + meaning;
      Add(r, name, {"", "", after}, message);
      WriteLine(r, message);
    };
    bound("floor", "scaling.min_scale", config_.scaling.min_scale, "overflows lower it no further");
    bound("ceiling", "scaling.max_scale", config_.scaling.max_scale, "it grows no further");
  }
  scale_moved_ = moves;
  if (!r.error.empty()) Add(r, "policy_end", {}, r.error);
}

}  // namespace ada::record
