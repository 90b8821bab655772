// What to change where a run is not finite, or where its loss rose: one cause, one change.
// BrokenAdvice decides between an optimizer's constant, a learning rate, a loss scale and a format,
// by the first tensor that was not finite (telemetry/not_finite.h) and by what grew before it.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "config/derived.h"
#include "config/load.h"
#include "io/text.h"
#include "judge/scale_path.h"
#include "study/advise/run_record.h"
#include "study/text_table.h"

namespace ada::study {
namespace {

constexpr std::size_t kLast = 5;       // steps that are looked at before a run breaks
constexpr double kLossRises = 4;       // times the first loss
constexpr double kNormRises = 100;     // times the first norm, which moves more than the loss does
constexpr double kLossStaysAbove = 2;  // times the first loss

using telemetry::FirstNotFinite;

constexpr std::int64_t kFirstSteps = 10;  // in which a rate that is too large shows
constexpr double kNear = 8;               // below this part of a format's end values were close
constexpr double kHeadroom = 4;           // of a scale, below the largest that fits
constexpr double kUsualScale = 65536;     // that dynamic scaling begins with
constexpr double kGoneBy = 1024;          // a scale that fell by more was not too large alone
// Skipped steps by one tensor without a scale, which no policy's search for one explains.
constexpr std::int64_t kManySkips = 5;
constexpr double kManySkipped = 0.01;  // of all steps

bool IsAdam(const config::Config& config) {
  return config.optimizer.kind != backend::UpdateRule::Kind::kSgd;
}
// The counts of underflow.csv know it best, since layers may have formats of their own; a tensor
// that was never logged has that of its role.
std::optional<NumberFormat> FormatOf(const RunRecord& record, const std::string& layer,
                                     const std::string& tensor) {
  const auto found = record.formats.find({layer, tensor});
  if (found != record.formats.end()) return found->second;
  if (layer.empty()) return std::nullopt;
  const config::PrecisionConfig& p = record.config.precision;
  const std::string role = RoleOf(tensor);
  if (role == "weight_gradients") return p.weight_gradients.value_or(kFp32);
  if (role == "activations") return p.activations.value_or(p.format);
  return (role == "weights" ? p.weights : p.gradients).value_or(p.format);
}

// Made for one record of a broken run. It always gives an advice, at last one that is little sure.
class Broken {
 public:
  explicit Broken(const RunRecord& record)
      : record_(record),
        config_(record.config),
        first_(record.run.finiteness().first()),
        own_(judge::TotalScaleEntry(config_, first_.layer, first_.tensor)),
        scale_(own_ < 0 ? first_.scale : *config_.scaling.layers[own_].total_scale) {}

  // In order of certainty: averages that underflow and are divided by; then a loss that rose while
  // everything was finite; then the cause that the first tensor that is not finite shows.
  Advice Find() {
    std::optional<Advice> state = StateAdvice(record_);
    // With a rate that is far too large the averages are not the first thing to mend.
    if (state && config_.optimizer.lr <= 10 * UsualRate(config_)) {
      state->reason = Story() + "; " + state->reason;
      state->sure = "well";
      return *state;
    }
    if (record_.run.finiteness().since() == 0) return Rate("fairly");
    const bool of_blocks = first_.cause == telemetry::NotFiniteCause::kBlocks;
    if (of_blocks || (IsOperand(first_.tensor) && !record_.course.Rose())) {
      Advice advice = PlainOperands(config_, {first_.layer});
      advice.reason = Story() + (of_blocks ? ": " + telemetry::CauseText(first_.cause)
                                           : ", more than the operand's format has");
      advice.sure = "well";
      return advice;
    }
    if (telemetry::IsOfOptimizer(first_)) return OfOptimizer();
    if (IsOfRate()) return Rate("fairly");
    if (IsOfScale()) return Scale();
    return Format();
  }

 private:
  // "not finite from step 4 on, first tensor f2.y (largest magnitude 8.03e+04)".
  std::string Story() const {
    const std::int64_t since = record_.run.finiteness().since();
    const std::string rise = record_.course.Text();
    if (since == 0) return rise;
    std::string text = "not finite from step " + std::to_string(since) + " on";
    if (!first_.layer.empty()) {
      text += ", first tensor ";
      text += first_.layer == "input" ? first_.layer : first_.layer + "." + first_.tensor;
      text +=
          " (largest magnitude " + ShortNumber(std::strtod(first_.value.c_str(), nullptr)) + ")";
    }
    return text + (rise.empty() ? "" : "; before, " + rise);
  }

  Advice OfOptimizer() const {
    const std::string why = Story() + "; gradients were finite and the weights are not";
    if (IsAdam(config_) && config_.optimizer.epsilon < 1e-8)
      return {"optimizer", {{"epsilon", "1e-8"}}, why + ": Adam divides by epsilon", "well"};
    Advice advice = Rate("fairly");
    advice.reason = why + ", so the update was too large";
    // Where lr * decay is 1, SGD's L2 penalty or AdamW's decay takes the whole weight in one step.
    if (const double decay = config_.optimizer.weight_decay; config_.optimizer.lr * decay >= 1) {
      advice.keys.emplace_back("weight_decay", "1e-4");
      advice.reason +=
          "; a decay of " + ShortNumber(decay) + " alone takes more than the whole weight";
      advice.sure = "well";
    }
    return advice;
  }

  // Whether updates made values grow: the loss rose, or all went well for a few steps only and
  // neither a scale nor values that were large from the start explain the end.
  bool IsOfRate() const {
    if (record_.course.good_steps() == 0) return false;
    if (record_.course.Rose()) return true;
    const bool scaled = telemetry::IsOfScale(first_) && scale_ > 1;
    return first_.step <= kFirstSteps && !scaled && !WasNearFromTheStart();
  }
  bool WasNearFromTheStart() const {
    const TensorCourse* course = record_.course.Find(first_.layer, first_.tensor);
    const std::optional<NumberFormat> format = FormatOfFirst();
    return course != nullptr && format && kNear * course->first_largest > format->largest();
  }

  Advice Rate(const char* sure) const {
    const double rate = config_.optimizer.lr;
    const double momentum = IsAdam(config_) ? 0 : config_.optimizer.momentum;
    const double usual = UsualRate(config_) * (1 - momentum);
    Advice advice{"optimizer", {{"lr", ShortNumber(std::min(rate / 10, usual))}}, Story(), sure};
    advice.reason += ": steps of lr " + ShortNumber(rate) + " are too large";
    if (rate > usual)
      advice.reason += std::string(" (usual for ") + (IsAdam(config_) ? "Adam" : "SGD") + ": " +
                       ShortNumber(usual) + ")";
    return advice;
  }

  // The largest scale at which the tensor would have fitted; nothing where its largest value is no
  // number.
  // The value was seen with scale_ on it; the largest scale that fits makes of it the
  // format's largest value.
  std::optional<double> Room() const {
    const std::optional<NumberFormat> format = FormatOfFirst();
    const double value = std::strtod(first_.value.c_str(), nullptr);
    if (!telemetry::HasNumber(first_) || !format || value <= 0) return std::nullopt;
    return scale_ / value * format->largest();
  }

  // Whether the scale was too large: its tensor carries it, and would have fitted without it, or a
  // scale that was made ever smaller has not been without effect.
  bool IsOfScale() const {
    if (!telemetry::IsOfScale(first_) || scale_ <= 1) return false;
    // A room below 1 means that the value does not fit even without a scale: it is not the scale's
    // fault.
    if (const std::optional<double> room = Room()) return *room >= 1;
    return record_.run.last().scale > 1 / kGoneBy;
  }

  // A power of two below the scale that it had.
  // Without a largest value to go by, the scale is taken down by a factor of kGoneBy.
  double FittingScale() const {
    const std::optional<double> room = Room();
    const double most = room ? *room / kHeadroom : scale_ / kGoneBy;
    return std::exp2(std::floor(std::log2(std::clamp(most, 1.0, kUsualScale))));
  }

  Advice Scale() const {
    const std::string scale = ShortestText(FittingScale());
    Advice advice{
        "scaling", {}, Story() + ": S = " + ShortNumber(scale_) + " is too large", "well"};
    if (own_ >= 0) {
      config::Config changed = config_;
      changed.scaling.layers[own_].total_scale = FittingScale();
      advice.keys = {{"layers", ValueText(changed, "scaling", "layers")}};
      advice.reason +=
          ", the total_scale that scaling.layers gives " + config_.scaling.layers[own_].match;
      return advice;
    }
    if (config_.scaling.policy == "fixed") {
      advice.keys = {{"policy", "dynamic"}, {"init_scale", scale}};
      advice.reason += "; a dynamic one backs off";
    } else {
      advice.keys = {{config_.scaling.policy == "logmax" ? "max_scale" : "init_scale", scale}};
      advice.sure = "fairly";
    }
    if (record_.run.last().scale == 0) {
      advice.keys.emplace_back("min_scale", "1");
      advice.reason += "; it fell to 0, at which every gradient is 0, and stays there";
    }
    return advice;
  }

  std::optional<NumberFormat> FormatOfFirst() const {
    return FormatOf(record_, first_.layer, first_.tensor);
  }

  Advice Format() const {
    const std::optional<NumberFormat> format = FormatOfFirst();
    const std::optional<NumberFormat> wider = format ? Wider(*format) : std::nullopt;
    if (!wider) return Rate("little");
    Advice advice = FormatAdvice(config_, first_.layer, first_.tensor, *wider);
    advice.reason = Story() + ", more than " + FormatName(*format) + " has";
    if (record_.run.last().scale == 0)
      advice.reason += "; the scale was halved to 0 for good, which could not help";
    return advice;
  }

  const RunRecord& record_;
  const config::Config& config_;
  const FirstNotFinite first_;
  const int own_;       // the entry of scaling.layers whose total_scale it carries; -1: none
  const double scale_;  // that the first tensor carried
};

}  // namespace

void Course::Add(const telemetry::StepRow& row) {
  // A norm that is not finite although the step did not overflow is counted as 0: it cannot be
  // compared.
  if (row.overflow || !std::isfinite(row.loss)) return;
  const Moment moment{row.loss, std::isfinite(row.grad_norm) ? row.grad_norm : 0};
  if (good_steps_++ == 0) first_ = moment;
  last_.push_back(moment);
  if (last_.size() > kLast) last_.pop_front();
}

void Course::Add(const telemetry::TensorRow& row) {
  const auto [found, is_new] = tensors_.try_emplace(row.layer + "." + row.tensor);
  TensorCourse& tensor = found->second;
  const double largest = std::isfinite(row.max_abs) ? row.max_abs : 0;
  tensor.largest = std::max(tensor.largest, largest);
  if (!is_new) return;
  tensor.first_largest = largest;
  if (!std::isnan(row.underflow_pct_nonzero)) tensor.first_pct = row.underflow_pct_nonzero;
  tensor.first_mean = row.mean, tensor.first_std = row.std;
}

Course::Moment Course::Largest() const {
  Moment largest{};
  for (const Moment& moment : last_)
    largest = {std::max(largest.loss, moment.loss), std::max(largest.norm, moment.norm)};
  return largest;
}

bool Course::Rose() const { return !Text().empty(); }

// All of the last steps, so that one hard batch is no divergence; and more steps than are looked
// at, so that the first is not among them.
bool Course::Diverged() const {
  return good_steps_ > static_cast<std::int64_t>(kLast) && first_.loss > 0 &&
         std::all_of(last_.begin(), last_.end(), [this](const Moment& moment) {
           return moment.loss > kLossStaysAbove * first_.loss;
         });
}

std::string Course::Text() const {
  const auto rise = [](const char* what, double from, double to) {
    return std::string(what) + " rose from " + ShortNumber(from) + " to " + ShortNumber(to);
  };
  const Moment largest = Largest();
  // A loss that stays above needs to have risen less than one that peaks.
  if (largest.loss > (Diverged() ? kLossStaysAbove : kLossRises) * first_.loss && first_.loss > 0)
    return rise("the loss", first_.loss, largest.loss);
  if (largest.norm > kNormRises * first_.norm && first_.norm > 0)
    return rise("the norm of the gradients", first_.norm, largest.norm);
  return "";
}

const TensorCourse* Course::Find(const std::string& layer, const std::string& tensor) const {
  const auto found = tensors_.find(layer + "." + tensor);
  return found == tensors_.end() ? nullptr : &found->second;
}

double UsualRate(const config::Config& config) { return IsAdam(config) ? 1e-3 : 0.1; }

// What broke in the first step, of a gradient, or because images leave their format has other
// causes.
std::optional<telemetry::LostFromTheStart> RunRecord::LostBefore() const {
  std::optional<telemetry::LostFromTheStart> lost = telemetry::FindLostFromTheStart(layers);
  if (!is_broken() || !lost) return std::nullopt;
  const std::int64_t since = run.finiteness().since();
  if (since > 0 && !telemetry::IsOfLostGradients(run.finiteness().first(lost))) return std::nullopt;
  return lost;
}

std::optional<Advice> BrokenAdvice(const RunRecord& record) {
  if (!record.is_broken()) return std::nullopt;
  return Broken(record).Find();
}

// A wider format for the tensor that most skipped steps began with, where that carries no scale.
std::optional<Advice> SkipsAdvice(const RunRecord& record) {
  const std::int64_t steps = record.run.steps();
  if (record.is_broken()) return {};
  const auto most = std::max_element(
      record.skips.begin(), record.skips.end(),
      [](const auto& a, const auto& b) { return a.second.steps < b.second.steps; });
  if (most == record.skips.end() || most->second.steps < kManySkips ||
      static_cast<double>(most->second.steps) < kManySkipped * static_cast<double>(steps))
    return {};
  const auto& [layer, tensor] = most->first;
  if (CarriesS(tensor) || IsOperand(tensor)) return {};
  const std::optional<NumberFormat> format = FormatOf(record, layer, tensor);
  const std::optional<NumberFormat> wider = format ? Wider(*format) : std::nullopt;
  if (!wider) return {};
  Advice advice = FormatAdvice(record.config, layer, tensor, *wider);
  advice.reason = std::to_string(record.run.skipped()) + " of " + Counted(steps, "step") +
                  " were skipped, most often first " + layer + "." + tensor +
                  " (largest magnitude " +
                  ShortNumber(std::strtod(most->second.value.c_str(), nullptr)) + "), more than " +
                  FormatName(*format) + " has";
  advice.sure = "well";
  return advice;
}

// An average of squares that is kept as zero below one that is not: the update is that one over
// epsilon, whatever the share of such values. bf16 has fp32's range, and so no such zeros.
std::optional<Advice> ZeroDenominators(const RunRecord& record) {
  const config::OptimizerStateConfig& how = record.config.precision.optimizer_state;
  if (how.layout.empty() && how.scaling == backend::StateStorage::Scaling::kNone)
    return std::nullopt;
  using telemetry::TensorTotals;
  const TensorTotals* worst = telemetry::WorstTensor(
      record.layers, &TensorTotals::most_zero_denominators,
      [](const TensorTotals& t) { return t.most_zero_denominators > 0 && t.tensor != "state"; });
  if (worst == nullptr) return std::nullopt;
  return Advice{
      "precision",
      {{"optimizer_state",
        "{format: fp8_e4m3, exp_avg_sq: bf16, scaling: block, block: 128, map: dynamic}"}},
      worst->name() + ": up to " + std::to_string(worst->most_zero_denominators) +
          " averages of squares are zero in " + worst->last_format +
          " where the average that they divide is not, and the update is that average / "
          "epsilon; a larger optimizer.epsilon, a smaller block or a map without a zero "
          "helps as well",
      "well"};
}

// In a healthy run the mean over steps decides, since single steps do little harm to an average.
std::optional<Advice> StateAdvice(const RunRecord& record) {
  if (std::optional<Advice> advice = ZeroDenominators(record)) return advice;
  const NumberFormat& format = record.config.precision.optimizer_state.format;
  if (format == kFp32) return std::nullopt;
  const bool adam = IsAdam(record.config);
  // What Adam divides by is zero in the step, whatever the mean is.
  if (!adam && Contains(config::KeptInTheMean(record.config.precision), "state"))
    return std::nullopt;
  const auto lost = [&](const telemetry::TensorTotals& t) {
    return record.is_broken() && adam ? t.pct_max : t.pct_mean();
  };
  const telemetry::TensorTotals* worst = telemetry::WorstTensor(record.layers, lost, [&](auto& t) {
    return WholeTensor(t.tensor) == "state" && lost(t) >= kManyLost;
  });
  if (worst == nullptr || (record.is_broken() && !adam)) return std::nullopt;
  const double most = lost(*worst);
  return Advice{"precision",
                {{"optimizer_state", "fp32"}},
                worst->name() + ": " + PercentText(most) +
                    " of the optimizer's averages become zero in " + FormatName(format) +
                    (adam ? ", and Adam divides by them" : ""),
                most >= 30 ? "well" : "fairly"};
}

}  // namespace ada::study
