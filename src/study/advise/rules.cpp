// The rules of `advise`, in the order of what hurts most.
#include <algorithm>
#include <cmath>

#include "config/load.h"
#include "core/tensor_names.h"
#include "core/text.h"
#include "study/advise/parts.h"
#include "telemetry/no_gradient.h"

namespace ada::study {
namespace {

using telemetry::TensorTotals;

constexpr double kManyLost = 10;  // percent of changes, or of what is kept, that vanish
constexpr double kTimesTarget = 10;

std::string Pct(double value) { return Formatted("%.3g %%", value); }
std::string Slower(const config::Config& config) { return ShortestText(config.optimizer.lr / 10); }
// "{match: fc1, gradients: bf16}" after the entries that the run has.
std::string WithEntries(const config::PrecisionConfig& precision) {
  std::string list;
  for (const config::LayerPrecisionConfig& entry : precision.layers) {
    list += (list.empty() ? "{match: " : ", {match: ") + config::YamlText(entry.match);
    const auto add = [&](const char* key, const std::optional<NumberFormat>& format) {
      if (format) list += std::string(", ") + key + ": " + FormatName(*format);
    };
    add("format", entry.format);
    add("activations", entry.activations);
    add("weights", entry.weights);
    add("gradients", entry.gradients);
    add("weight_gradients", entry.weight_gradients);
    list += "}";
  }
  return "[" + list + "]";
}

class Rules {
 public:
  Rules(const RecommendOptions& options, const RunRecord& record)
      : options_(options), record_(record), config_(record.config) {}

  std::vector<Advice> Find() {
    NotFinite();
    Kept("update", "masters", config_.precision.masters.format,
         " of its weights' changes vanish where masters are kept in ");
    Kept("state", "optimizer_state", config_.precision.optimizer_state.format,
         " of the optimizer's averages become zero in ");
    Kept("master", "masters", config_.precision.masters.format,
         " of its weights become zero where masters are kept in ");
    Target();
    StartScale();
    FromHistograms();
    Dead();
    return std::move(all_);
  }

 private:
  // A section's key has one value: the first rule that sets it is the more urgent one.
  void Add(Advice advice) {
    for (Advice& known : all_) {
      if (known.section != advice.section) continue;
      // Only one piece of advice is given about the scale.
      const bool scaling = advice.section == "scaling";
      const bool taken = std::any_of(advice.keys.begin(), advice.keys.end(), [&](const auto& key) {
        return std::any_of(known.keys.begin(), known.keys.end(),
                           [&](const auto& own) { return own.first == key.first; });
      });
      if (scaling || taken) return;
    }
    all_.push_back(std::move(advice));
  }

  void NotFinite() {
    const telemetry::Finiteness& finiteness = record_.run.finiteness();
    if (finiteness.since() == 0) return;
    const telemetry::FirstNotFinite first = finiteness.first();
    const std::string reason = finiteness.Text();
    if (telemetry::IsOfOptimizer(first)) {
      Advice advice{"optimizer", {{"lr", Slower(config_)}}, reason, "fairly"};
      const bool adam = config_.optimizer.kind != backend::UpdateRule::Kind::kSgd;
      if (adam && config_.optimizer.epsilon < 1e-8)
        advice = {"optimizer", {{"epsilon", "1e-8"}}, reason, "well"};
      return Add(std::move(advice));
    }
    if (record_.run.last().scale == 0)
      return Add({"scaling", {{"min_scale", "1"}}, "the scale is 0 for good; " + reason, "well"});
    if (telemetry::IsOfScale(first)) return ScaleNotFinite(first, reason);
    if (first.layer == "input" &&
        config_.data.normalize.kind == config::NormalizeConfig::Kind::kNone)
      return Add({"data", {{"normalize", "standard"}}, reason, "fairly"});
    if (first.layer == "input" || (first.tensor == "y" && config_.precision.format != kFp32 &&
                                   config_.precision.format != kBf16))
      return Add({"precision", {{"activations", "bf16"}}, reason, "fairly"});
    if (first.tensor == "w" && config_.precision.format != kFp32)
      return Add({"precision", {{"weights", "bf16"}}, reason, "fairly"});
    Add({"optimizer", {{"lr", Slower(config_)}}, reason, "little"});
  }

  void ScaleNotFinite(const telemetry::FirstNotFinite& first, const std::string& reason) {
    if (first.scale > 1 && config_.scaling.policy == "fixed")
      return Add({"scaling",
                  {{"policy", "dynamic"}, {"init_scale", ShortestText(first.scale)}},
                  reason + "; a dynamic one backs off",
                  "well"});
    if (first.scale > 1) return Add({"scaling", {{"init_scale", "1"}}, reason, "fairly"});
    Add({"precision", {{"gradients", "bf16"}}, reason, "fairly"});
  }

  // What masters and state lose where they are kept.
  void Kept(const std::string& tensor, const std::string& key, const NumberFormat& format,
            const std::string& words) {
    if (format == kFp32) return;
    const TensorTotals* worst = nullptr;
    for (const TensorTotals& t : record_.layers.tensors())
      if (WholeTensor(t.tensor) == tensor && t.pct_mean() >= kManyLost &&
          (worst == nullptr || t.pct_mean() > worst->pct_mean()))
        worst = &t;
    if (worst == nullptr) return;
    Add({"precision",
         {{key, "fp32"}},
         worst->layer + "." + worst->tensor + ": " + Pct(worst->pct_mean()) + words +
             FormatName(format),
         worst->pct_mean() >= 30 ? "well" : "fairly"});
  }

  // Adaptive scales that were computed to need nothing where much is lost all the same.
  void Target() {
    if (config_.scaling.policy != "adaptive") return;
    const double target = 100 * config_.scaling.adaptive.underflow_target;
    const TensorTotals* worst = nullptr;
    for (const TensorTotals& t : record_.layers.tensors()) {
      const telemetry::ScaleTotals* scale = record_.layers.FindScale(t.layer, false);
      if (t.tensor != "dx" || scale == nullptr) continue;
      if (scale->last_limit != "one" && scale->last_limit != "target") continue;
      if (t.pct_mean() <= kTimesTarget * target) continue;
      if (worst == nullptr || t.pct_mean() > worst->pct_mean()) worst = &t;
    }
    if (worst == nullptr) return;
    const std::string limit = record_.layers.FindScale(worst->layer, false)->last_limit;
    if (config_.scaling.adaptive.method == scaling::LayerMethod::kExactRange) return;
    Add({"scaling",
         {{"policy", "adaptive"}, {"method", "exact_range"}},
         worst->layer + ".dx loses " + Pct(worst->pct_mean()) + " where its scale says \"" + limit +
             "\" for a target of " + Pct(target) +
             ": the estimate met it in expectation, not in fact; exact_range counts the values",
         "well"});
  }

  // The logit gradient carries the scale that backpropagation starts with, and nothing mends what
  // it loses.
  void StartScale() {
    const TensorTotals* loss = record_.layers.FindTensor("loss", "dx");
    if (loss == nullptr || config_.scaling.policy == "none") return;
    if (loss->pct_mean() <= kTimesTarget * 100 * options_.underflow_target) return;
    const auto needs = std::find_if(record_.needs.tensors.begin(), record_.needs.tensors.end(),
                                    [](const TensorNeeds& t) { return t.name() == "loss.dx"; });
    if (needs == record_.needs.tensors.end() || needs->silent()) return;
    const Powers powers = PowersFor(*needs, needs->format, options_.headroom_bits);
    if (!powers.any() || std::ldexp(1.0, powers.low) <= loss->last_scale) return;
    const std::string scale = ShortestText(std::ldexp(1.0, powers.low));
    const bool fixed = config_.scaling.policy == "fixed";
    Advice advice{"scaling",
                  {{fixed ? "scale" : "init_scale", scale}},
                  "loss.dx loses " + Pct(loss->pct_mean()) + " at S = " +
                      ShortestText(loss->last_scale) + ", with which backpropagation starts",
                  "well"};
    // With the method of Target, where that has spoken: one sentence.
    for (Advice& known : all_)
      if (known.section == "scaling") {
        // What is too large already is not to grow.
        if (record_.run.finiteness().since() > 0) return;
        known.keys.push_back(advice.keys.front());
        known.reason += "; " + advice.reason;
        return;
      }
    Add(std::move(advice));
  }

  void FromHistograms() {
    if (!record_.has_histograms) return;
    const Recommendation recommended =
        MakeRecommendation(options_, config_, record_.formats, record_.needs);
    const TensorNeeds* worst = nullptr;
    for (const TensorNeeds& t : record_.needs.tensors)
      if (t.carries_s() && !MeetsTarget(t.lost_pct, static_cast<double>(t.overflow), options_) &&
          (worst == nullptr || t.lost_pct > worst->lost_pct))
        worst = &t;
    if (worst == nullptr) return;
    const char* sure = GradeOf(config_, record_.needs);
    const std::string lost = worst->name() + " lost " + Pct(worst->lost_pct) + " in " +
                             FormatName(worst->format) + " at S = " + ShortestText(worst->scale);
    const scaling::Settings& s = recommended.config.scaling;
    Advice advice{"scaling", {{"policy", s.policy}}, lost, sure};
    if (s.policy == "fixed") advice.keys.emplace_back("scale", ShortestText(s.scale));
    if (s.policy == "adaptive") {
      advice.keys.emplace_back("method", "exact_range");
      advice.keys.emplace_back("init_scale", ShortestText(s.init_scale.value_or(1)));
    }
    if (s.policy != config_.scaling.policy || s.policy == "fixed" || s.policy == "adaptive")
      Add(std::move(advice));
    if (recommended.changes.empty()) return;
    std::vector<std::string> layers;
    for (const FormatChange& change : recommended.changes)
      layers.push_back(change.layer + " (" + change.role + ")");
    Advice formats{"precision", {}, "no scale keeps " + FirstNames(layers, 3), sure};
    const config::PrecisionConfig& p = recommended.config.precision;
    const auto role = [&](const char* key, const std::optional<NumberFormat>& now,
                          const std::optional<NumberFormat>& was) {
      if (now != was && now) formats.keys.emplace_back(key, FormatName(*now));
    };
    role("activations", p.activations, config_.precision.activations);
    role("weights", p.weights, config_.precision.weights);
    role("gradients", p.gradients, config_.precision.gradients);
    role("weight_gradients", p.weight_gradients, config_.precision.weight_gradients);
    if (p.layers.size() != config_.precision.layers.size())
      formats.keys.emplace_back("layers", WithEntries(p));
    if (!formats.keys.empty()) Add(std::move(formats));
  }

  // Layers without a gradient for reasons that no format has.
  void Dead() {
    const auto dead = telemetry::LayersWithoutGradient(record_.layers);
    if (dead.empty()) return;
    const auto by_network = std::find_if(dead.begin(), dead.end(), [](const auto& layer) {
      return !layer.by_rounding && layer.died_at != "branch";
    });
    if (by_network != dead.end())
      return Add({"optimizer",
                  {{"lr", Slower(config_)}},
                  telemetry::NoGradientText({*by_network}, 1),
                  "little"});
    const auto rounded =
        std::find_if(dead.begin(), dead.end(), [](const auto& layer) { return layer.by_rounding; });
    if (rounded != dead.end())
      Add({"precision",
           {{"gradients", "bf16"}},
           telemetry::NoGradientText({*rounded}, 1),
           "fairly"});
  }

  const RecommendOptions& options_;
  const RunRecord& record_;
  const config::Config& config_;
  std::vector<Advice> all_;
};

}  // namespace

std::vector<Advice> FindAdvice(const RecommendOptions& options, const RunRecord& record) {
  return Rules(options, record).Find();
}

}  // namespace ada::study
