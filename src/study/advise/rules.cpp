// The rules of `advise`, in the order of what hurts most.
#include <algorithm>
#include <cmath>

#include "config/derived.h"
#include "io/tensor_names.h"
#include "io/text.h"
#include "judge/scale_path.h"
#include "study/advise/run_record.h"
#include "study/text_table.h"
#include "telemetry/block_figures.h"
#include "telemetry/coverage.h"
#include "telemetry/totals.h"

namespace ada::study {
namespace {

using telemetry::TensorTotals;

constexpr double kTimesTarget = 10;
constexpr std::size_t kMost = 5;  // changes

// Made for one record. A rule adds at most one advice or a few; Add keeps them from repeating or
// contradicting one another.
class Rules {
 public:
  Rules(const RecommendOptions& options, const RunRecord& record)
      : options_(options), record_(record), config_(record.config) {}

  // First the input, then what broke the run, then losses in stored weights and averages, then
  // scales and formats, gradients among noise, and last layers without a gradient that none of
  // these explains.
  std::vector<Advice> Find() {
    // If images are lost, all other findings are effects of that.
    if (std::optional<Advice> input = InputAdvice(record_)) return {*input};
    if (!LostBefore()) Add(BrokenAdvice(record_));
    Add(SkipsAdvice(record_));
    if (!record_.is_broken()) StoredState();
    Losses();
    Target();
    StartScale();
    if (!record_.is_broken()) Noise();
    if (!record_.is_broken()) Dead();
    if (!record_.is_broken())
      for (Advice& advice : OperandAdvice(options_, record_)) Add(std::move(advice));
    if (!record_.is_broken()) Add(SumsAdvice(record_));
    // More changes at once would not tell which of them helped.
    if (all_.size() > kMost) all_.resize(kMost);
    return std::move(all_);
  }

 private:
  // Each cause has one line, each key one value: the first rule that speaks is the more urgent one.
  // Only one line is about the scale.
  void Add(std::optional<Advice> advice) {
    if (!advice || advice->keys.empty()) return;
    for (const Advice& known : all_) {
      if (!advice->mends.empty() &&
          std::all_of(advice->mends.begin(), advice->mends.end(),
                      [&](const std::string& tensor) { return Contains(known.mends, tensor); }))
        return;
      if (known.section != advice->section) continue;
      if (known.section == "scaling") return;
      for (const auto& [key, value] : advice->keys)
        for (const auto& own : known.keys)
          if (own.first == key) return;
    }
    all_.push_back(std::move(*advice));
  }

  // From histograms, or where these show nothing from counts, which are of more steps.
  void Losses() {
    std::vector<Advice> losses;
    if (record_.has_histograms) losses = HistogramAdvice(options_, record_);
    if (losses.empty()) losses = CountAdvice(options_, record_);
    for (Advice& advice : losses) Add(std::move(advice));
  }

  // A broken run whose gradients were lost before: what keeps them comes first, and no other cause
  // is looked for unless the rate is unusual. Whether that is all there is to say of the break.
  bool LostBefore() {
    const auto lost = record_.LostBefore();
    const double rate = config_.optimizer.lr, usual = UsualRate(config_);
    if (!lost || rate > kTimesTarget * usual) return false;
    Losses();
    if (all_.empty()) return false;
    const std::int64_t since = record_.run.finiteness().since();
    all_.front().reason =
        telemetry::NameText(*lost) + ", long before " +
        (since > 0 ? "the run broke in step " + std::to_string(since) : record_.course.Text()) +
        "; " + all_.front().reason;
    all_.front().sure = "fairly";
    return rate <= usual;
  }

  // What masters and the optimizer's state lose where they are kept.
  void StoredState() {
    const config::PrecisionConfig& p = config_.precision;
    // Keys that need few bits go with them: maps are merged (train --with).
    const bool plain =
        p.masters.compensation == backend::UpdateRule::Compensation::kNone && !p.masters.arithmetic;
    const std::string fp32 =
        plain ? "fp32" : "{format: fp32, compensation: none, arithmetic: fp32}";
    const auto masters = [&](const std::string& tensor, const std::string& words) {
      Lost(tensor, {"masters", fp32}, p.masters.format, words + " where masters are kept in ");
    };
    masters("update", " of its weights' changes vanish");
    Add(StateAdvice(record_));
    masters("master", " of its weights become zero");
    Lost("accumulated",
         {"accumulated_gradients",
          p.accumulated_gradients.scales() ? "{format: fp32, scaling: none}" : "fp32"},
         p.accumulated_gradients.format,
         " of its gradients' parts vanish where they are added up in ");
  }

  void Lost(const std::string& tensor, const Keys::value_type& key, const NumberFormat& format,
            const std::string& words) {
    if (format == kFp32 || Contains(config::KeptInTheMean(config_.precision), tensor)) return;
    const TensorTotals* worst =
        telemetry::WorstTensor(record_.layers, &TensorTotals::pct_mean, [&](const TensorTotals& t) {
          return WholeTensor(t.tensor) == tensor && t.pct_mean() >= kManyLost;
        });
    if (worst == nullptr) return;
    Add(Advice{"precision",
               {key},
               worst->name() + ": " + PercentText(worst->pct_mean()) + words + FormatName(format),
               worst->pct_mean() >= 30 ? "well" : "fairly"});
  }

  // Adaptive scales that were computed to need nothing where much is lost all the same.
  // The limits "one" and "target" mean that the rule found the target met; counts that disagree
  // show that its model of the gradient does not hold.
  void Target() {
    if (config_.scaling.policy != "adaptive" || record_.is_broken()) return;
    const double target = 100 * config_.scaling.adaptive.underflow_target;
    const TensorTotals* worst = nullptr;
    std::vector<std::string> mends;
    for (const TensorTotals& t : record_.layers.tensors()) {
      const telemetry::ScaleTotals* scale = record_.layers.FindScale(t.layer, false);
      if (t.tensor != "dx" || scale == nullptr) continue;
      if (scale->last_limit != "one" && scale->last_limit != "target") continue;
      if (t.pct_mean() <= kTimesTarget * target || IsHarmless(record_, t)) continue;
      mends.push_back(t.name());
      if (worst == nullptr || t.pct_mean() > worst->pct_mean()) worst = &t;
    }
    if (worst == nullptr) return;
    const std::string limit = record_.layers.FindScale(worst->layer, false)->last_limit;
    if (config_.scaling.adaptive.method == scaling::LayerMethod::kExactRange) return;
    Add(Advice{"scaling", ExactRange(config_),
               worst->layer + ".dx loses " + LostWords(*worst) + ", where its scale says \"" +
                   limit + "\" for a target of " + PercentText(target) +
                   ": the estimate met it in expectation, not in fact; exact_range counts the "
                   "values",
               "well", mends});
  }

  // The logit gradient carries the scale that backpropagation starts with, and nothing mends what
  // it loses.
  void StartScale() {
    const TensorTotals* loss = record_.layers.FindTensor("loss", "dx");
    if (std::any_of(all_.begin(), all_.end(),
                    [](const Advice& known) { return Contains(known.mends, "loss.dx"); }))
      return;
    if (loss == nullptr || config_.scaling.policy == "none" || record_.is_broken()) return;
    if (loss->pct_mean() <= kTimesTarget * 100 * options_.underflow_target) return;
    if (IsHarmless(record_, *loss)) return;
    const TensorNeeds* needs = record_.needs.Find("loss.dx");
    if (needs == nullptr || needs->silent() || !needs->asks_for_s()) return;
    // Computed from the histogram, because counts do not show which scale would be enough.
    const Powers powers = PowersFor(*needs, needs->format, options_.headroom_bits);
    const double scale = std::ldexp(1.0, powers.sure());
    if (!powers.any() || scale <= loss->last_scale) return;
    const std::string& policy = config_.scaling.policy;
    if (policy == "logmax") return;  // which chooses its start by itself
    Advice advice{"scaling",
                  {{policy == "fixed" ? "scale" : "init_scale", ShortestText(scale)}},
                  "loss.dx loses " + LostWords(*loss) + ", at S = " +
                      ShortNumber(loss->last_scale) + ", with which backpropagation starts",
                  "well",
                  {"loss.dx"}};
    // With the method of Target, where that has spoken: one sentence.
    for (Advice& known : all_)
      if (known.section == "scaling") {
        known.keys.push_back(advice.keys.front());
        known.reason += "; " + advice.reason;
        known.mends.emplace_back("loss.dx");
        return;
      }
    Add(std::move(advice));
  }

  // The same value is dy of the layer that made it and dx of those that take it, one of which is
  // logged.
  NumberFormat FormatOfDy(const std::string& layer) const {
    const judge::ScalePath path(config_.model);
    const std::string owner = path.FormatOwner(layer, "dy");
    for (const auto& [name, format] : record_.formats)
      if (CarriesS(name.second) && path.FormatOwner(name.first, name.second) == owner)
        return format;
    return config_.precision.gradients.value_or(config_.precision.format);
  }

  // Gradients whose norm is not far enough above that of their errors in the last row that knows
  // it: operands, and dw on probe steps. A dw is a sum of products with its layer's dy.
  void Noise() {
    std::string worst_layer, worst_tensor;
    const double limit = std::sqrt(telemetry::kStallPower);
    double least = limit;
    for (const auto& [name, over_noise] : record_.layers.noise())
      if (over_noise < least)
        least = over_noise, worst_layer = name.first, worst_tensor = name.second;
    if (worst_layer.empty()) return;
    const bool operands = IsOperand(worst_tensor);
    // Others that the same change mends.
    std::vector<std::string> layers, mends;
    for (const auto& [name, over_noise] : record_.layers.noise()) {
      if (!(over_noise < limit) || IsOperand(name.second) != operands) continue;
      if (!Contains(layers, name.first)) layers.push_back(name.first);
      mends.push_back(name.first + "." + name.second);
    }
    std::optional<NumberFormat> wider;
    if (!operands) {
      wider = Wider(FormatOfDy(worst_layer));
      if (!wider) return;
    }
    Advice advice = operands ? PlainOperands(config_, layers)
                             : FormatAdvice(config_, worst_layer, "dy", *wider);
    advice.reason = worst_layer + "." + worst_tensor + ": its norm is " + ShortNumber(least) +
                    " times that of its errors, and training stalls below " + ShortNumber(limit);
    if (operands && layers.size() > 1)
      advice.reason += "; so does that of " + Counted(layers.size() - 1, "other layer");
    advice.mends = std::move(mends);
    Add(std::move(advice));
  }

  // Layers without a gradient, where nothing that was said changes that: for reasons that no format
  // has, or by rounding.
  void Dead() {
    const auto dead = telemetry::LayersWithoutGradient(record_.layers);
    // What is zero after values that rounding took may be so for want of them.
    const bool by_rounding =
        std::any_of(dead.begin(), dead.end(), [](const auto& layer) { return layer.by_rounding; });
    const auto is_mended = [&](const std::string& tensor) {
      return std::any_of(all_.begin(), all_.end(),
                         [&](const Advice& known) { return Contains(known.mends, tensor); });
    };
    for (const auto& layer : dead) {
      // A gradient that meets others at a branch is theirs to mend.
      if (layer.died_at == "branch" || is_mended(layer.died_at)) continue;
      if (!layer.by_rounding && (by_rounding || WeightsVanish(record_))) continue;
      std::string reason = telemetry::NoGradientText(dead, kMost);
      if (!layer.by_rounding && record_.layers.FindTensor("input", "y") == nullptr)
        reason += "; whether the images vanish log.statistics with y would tell";
      // Weights that are all alike pass on no gradient that differs, and zeros none at all; a rate
      // cannot have made them so before the first step.
      const TensorCourse* first = record_.course.Find(layer.layer, layer.tensor);
      if (!layer.by_rounding && config_.model.init.scheme == config::InitScheme::kConstant &&
          first != nullptr && first->first_largest == 0)
        return Add(Advice{"model",
                          {{"init", "{scheme: he_normal}"}},
                          reason + "; so it was in the first step, and all weights start as " +
                              ShortNumber(config_.model.init.value),
                          "well"});
      if (!layer.by_rounding)
        return Add(Advice{
            "optimizer", {{"lr", ShortNumber(config_.optimizer.lr / 10)}}, reason, "little"});
      const std::string &at = layer.died_layer, &tensor = layer.died_tensor;
      if (IsOperand(tensor)) {
        Advice advice = PlainOperands(config_, {at});
        advice.reason = reason;
        advice.mends = {layer.died_at};
        return Add(std::move(advice));
      }
      const auto format = record_.formats.find({at, tensor});
      const std::optional<NumberFormat> wider =
          Wider(format == record_.formats.end() ? config_.precision.format : format->second);
      if (!wider) continue;
      Advice advice = FormatAdvice(config_, at, tensor, *wider);
      advice.reason = reason;
      return Add(std::move(advice));
    }
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

// So that "keep what you have" is no more than what was looked at.
std::string NothingText(const RunRecord& record) {
  std::string text = "keep what you have: ";
  text += record.run.steps() == 0 ? "steps.csv has no step yet, so that the loss is not known"
                                  : "the loss and the gradients are finite";
  if (record.run.skipped() > 0) text += " but in " + Counted(record.run.skipped(), "skipped step");
  text += "; " + LostTextOf(record);
  const TensorTotals* most = telemetry::LostMost(record.layers);
  if (most == nullptr && telemetry::CoverageOf(record.layers, 1, {}).counted.empty()) return text;
  // A scale beyond a tensor's range may be what a policy tries, and is said all the same.
  for (const TensorNeeds& t : record.needs.tensors) {
    if (!t.asks_for_s() || t.silent()) continue;
    const Powers powers = PowersFor(t, t.format, judge::kHeadroomBits);
    if (!powers.any() || !t.WasAbove(powers)) continue;
    text += "; S went up to " + ShortNumber(t.scale_high) + ", and " + t.name() +
            " has headroom up to " + ShortNumber(std::exp2(powers.high));
    break;
  }
  if (const telemetry::AccumulatorTotals* sums = telemetry::WorstSums(record.layers.sums()))
    text += "; sums lost most in " + sums->name() + ": " +
            telemetry::AccumulatorFigures(sums->swallowed_pct(), sums->bias(), sums->sqnr_db());
  const TensorNeeds* missed = nullptr;
  for (const TensorNeeds& t : record.needs.tensors)
    if (t.lost_magnitude_pct > (missed == nullptr ? 0 : missed->lost_magnitude_pct)) missed = &t;
  if (missed != nullptr)
    text += "; in steps with histograms what underflowed is at most " +
            PercentText(missed->lost_magnitude_pct) + " of a tensor's magnitude (" +
            missed->name() + ")";
  if (most != nullptr && IsOperand(most->tensor))
    text += "; of operands the noise matters (blocks.csv: sqnr_db, norm_over_noise)";
  return text + (record.has_histograms ? ""
                                       : "; there are no histograms, counts alone "
                                         "(log.histogram_every)");
}

}  // namespace ada::study
