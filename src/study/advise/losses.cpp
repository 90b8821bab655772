// What gradients lose, and what other scales and formats would keep: from histograms, or where
// there are none from the counts.
#include <algorithm>
#include <cmath>

#include "config/load.h"
#include "io/text.h"
#include "study/advise/run_record.h"
#include "study/config_changes.h"
#include "study/text_table.h"

namespace ada::study {
namespace {

using telemetry::TensorTotals;

constexpr double kAboveTarget = 10;  // a mean over steps above the target by so much is no outlier
constexpr std::size_t kNames = 3;

// Whether lost values can be a cause: in a broken run only those lost from the start are, because
// later ones may be effects.
bool IsBelieved(const RunRecord& record, const std::string& layer, const std::string& tensor) {
  if (!record.is_broken()) return true;
  const TensorCourse* course = record.course.Find(layer, tensor);
  return course != nullptr && course->first_pct >= kManyLost;
}

// Whether it has fp32's range: what vanishes in it is smaller than any scale should bring back.
bool KeepsRange(const NumberFormat& format) { return format.exponent_bits >= kFp32.exponent_bits; }

// Whether a recommendation gives the tensor another format.
bool IsChanged(const Recommendation& recommended, const std::string& tensor) {
  return std::any_of(recommended.changes.begin(), recommended.changes.end(),
                     [&](const FormatChange& change) { return Contains(change.tensors, tensor); });
}

// The keys of `precision` that a recommendation changes.
Keys FormatKeys(const config::Config& now, const config::Config& then) {
  Keys keys;
  const config::PrecisionConfig &was = now.precision, &is = then.precision;
  for (const FormatRole& role : kFormatRoles)
    if (const auto& format = is.*role.member; format && format != was.*role.member)
      keys.emplace_back(role.name, FormatName(*format));
  if (is.layers.size() != was.layers.size())
    keys.emplace_back("layers", ValueText(then, "precision", "layers"));
  for (auto& [key, value] : ChangedKeys("precision", now, then))
    if (key == "schedule") keys.emplace_back(key, value);
  return keys;
}

// One key for activations where that replaces a long list of layers: the widest of their formats.
// Nothing where other roles change too, or an entry of a layer or of the schedule would overrule
// it.
std::optional<Keys> ActivationsKey(const config::PrecisionConfig& now,
                                   const std::vector<FormatChange>& changes) {
  const std::string role = "activations";
  const auto is_other = [&](const FormatChange& change) { return change.role != role; };
  const auto sets = [&](const config::LayerPrecisionConfig& e) { return SetsRole(e, role); };
  if (changes.size() <= kNames || !now.schedule.empty() || PresetDecides(now, role) ||
      std::any_of(changes.begin(), changes.end(), is_other) ||
      std::any_of(now.layers.begin(), now.layers.end(), sets))
    return std::nullopt;
  const auto width = [](const FormatChange& change) {
    return std::pair(judge::BitsOf(change.format), change.format.exponent_bits);
  };
  const auto widest = std::max_element(
      changes.begin(), changes.end(),
      [&](const FormatChange& a, const FormatChange& b) { return width(a) < width(b); });
  return Keys{{role, FormatName(widest->format)}};
}

// Why formats change: tensors that carry S, and those that do not.
// Among those without a scale the largest loss is told, as one number for all, and what overflowed.
std::string ReasonOf(const RunRecord& record, const Recommendation& recommended) {
  std::vector<std::string> scaled, others;
  const TensorTotals* most = nullptr;
  std::int64_t overflow = 0;
  for (const TensorNeeds& t : record.needs.tensors) {
    if (!IsChanged(recommended, t.name())) continue;
    (t.asks_for_s() ? scaled : others).push_back(t.name() + " (" + FormatName(t.format) + ")");
    const TensorTotals* totals = record.layers.FindTensor(t.layer, t.tensor);
    if (!t.asks_for_s()) overflow += t.overflow;
    if (!t.asks_for_s() && totals != nullptr &&
        (most == nullptr || totals->lost_max > most->lost_max))
      most = totals;
  }
  std::string text;
  if (!scaled.empty()) text = "no scale holds all values of " + FirstNames(scaled, kNames);
  if (others.empty() || most == nullptr) return text;
  const bool one = others.size() == 1;
  return text + (text.empty() ? "" : "; ") + FirstNames(others, kNames) +
         (one ? " loses, whatever S is, " + LostWords(*most)
              : " lose, whatever S is, up to " + PercentText(most->lost_max)) +
         (overflow > 0 ? ", and " + std::to_string(overflow) + " values overflow" : "");
}

// The recommended scale, for `worst` above all. Where the histograms speak for one that is no
// larger than the scale at which much was lost, they are of too few steps for a single one; nothing
// where little was lost, or layers have their own already.
std::optional<Advice> ScaleAdvice(const RunRecord& record, const Recommendation& recommended,
                                  const TensorNeeds& worst, bool changed) {
  const scaling::Settings &s = recommended.config.scaling, &now = record.config.scaling;
  Advice advice{"scaling", ScalingKeys(recommended.config, record.config), ""};
  // The largest S is what made a tensor overflow.
  advice.reason = worst.name() + " lost " + LostWords(record, worst) + " in " +
                  FormatName(worst.format) + " at S = " +
                  (worst.overflow > 0 ? ShortNumber(worst.scale_high) + ", where it overflowed"
                                      : ShortNumber(worst.scale));
  if (changed) advice.reason += "; the format that it is to have asks for this one";
  const double scale = s.policy == "fixed" ? s.scale : 1;
  if (s.policy == "adaptive" || changed || worst.overflow > 0 || scale > worst.scale) return advice;
  const bool has_own =
      now.policy == "adaptive" && now.adaptive.method == scaling::LayerMethod::kExactRange;
  if (has_own || worst.lost_pct < kManyLost) return std::nullopt;
  advice.keys = ExactRange(record.config);
  advice.reason += "; the steps with histograms ask for less, so each layer is to follow its own";
  return advice;
}

// The format that a recommendation gives the tensor; null: its own.
const NumberFormat* ChangedFormat(const Recommendation& recommended, const std::string& tensor) {
  for (const FormatChange& change : recommended.changes)
    if (Contains(change.tensors, tensor)) return &change.format;
  return nullptr;
}

// What a single scale or formats for tensors could do, from the counts alone.
// Counts say how much was lost at the scale that was used, and the largest value, but not what
// another scale would keep; hence "little" sure.
class CountAdvisor {
 public:
  CountAdvisor(const RecommendOptions& options, const RunRecord& record)
      : options_(options), record_(record), config_(record.config) {}

  std::vector<Advice> Find() {
    const double target = 100 * options_.underflow_target;
    if (const TensorTotals* t = Worst(true, kAboveTarget * target)) all_.push_back(Scaled(*t));
    if (const TensorTotals* t = Worst(false, kManyLost))
      if (const std::optional<NumberFormat> wider = WiderOf(*t)) {
        Advice advice = FormatAdvice(config_, t->layer, t->tensor, *wider);
        advice.reason = Lost(*t) + "; it carries no scale";
        all_.push_back(std::move(advice));
      }
    for (Advice& advice : all_)
      advice.reason += record_.has_histograms
                           ? " (from the counts of underflow.csv: no histogram shows it)"
                           : " (from the counts of underflow.csv: there are no histograms)";
    return std::move(all_);
  }

 private:
  // The tensor that loses most on the mean, of those with a scale, or of y, w and dw.
  const TensorTotals* Worst(bool scaled, double above) const {
    // The mean over the logged steps, not the worst of them: single steps lose more now and then.
    return telemetry::WorstTensor(
        record_.layers, &TensorTotals::pct_mean, [&](const TensorTotals& t) {
          const bool asked = scaled ? CarriesS(t.tensor) && !IsOperand(t.tensor)
                                    : t.tensor == "y" || t.tensor == "w" || t.tensor == "dw";
          return asked && !IsHarmless(record_, t) && !(scaled && KeepsRange(FormatOf(t))) &&
                 t.pct_mean() >= above && IsBelieved(record_, t.layer, t.tensor);
        });
  }

  std::string Lost(const TensorTotals& t) const {
    return t.name() + " loses " + LostWords(t) + " in " + t.last_format +
           (CarriesS(t.tensor) ? " at S = " + ShortNumber(t.last_scale) : "");
  }
  const NumberFormat& FormatOf(const TensorTotals& t) const {
    return record_.formats.at({t.layer, t.tensor});
  }
  std::optional<NumberFormat> WiderOf(const TensorTotals& t) const { return Wider(FormatOf(t)); }

  // The largest power of two at which no gradient comes near its format's end.
  int HighestPower() const {
    int high = Powers().high;
    for (const TensorTotals& t : record_.layers.tensors()) {
      const TensorCourse* course = record_.course.Find(t.layer, t.tensor);
      if (!CarriesS(t.tensor) || IsOperand(t.tensor) || course == nullptr || course->largest == 0)
        continue;
      high = std::min(high, judge::HighestPower(record_.formats.at({t.layer, t.tensor}),
                                                course->largest, options_.headroom_bits));
    }
    return high;
  }

  // A larger scale where there is room for one, a scale for each layer where there was room and one
  // was not enough, and a wider format where both have been tried.
  Advice Scaled(const TensorTotals& t) const {
    const std::string& policy = config_.scaling.policy;
    Advice advice{"scaling", {}, Lost(t), "little"};
    for (const TensorTotals& each : record_.layers.tensors())
      if (CarriesS(each.tensor)) advice.mends.push_back(each.name());
    const int high = HighestPower();
    // A factor of 4 and more is worth a change; less is within the headroom.
    const bool has_room = std::ldexp(1.0, high) >= 4 * t.last_scale;
    const bool exact = config_.scaling.adaptive.method == scaling::LayerMethod::kExactRange;
    // A per-tensor scale makes up for any other S.
    const bool follows = record_.history.scaled_gradients;
    if (!follows && (policy == "none" || policy == "fixed" || policy == "dynamic") && has_room) {
      const std::string scale = ShortestText(std::ldexp(1.0, high));
      advice.keys = {{"policy", "dynamic"}, {"init_scale", scale}};
      advice.reason +=
          ", and up to S = " + ShortNumber(std::ldexp(1.0, high)) + " no gradient overflows";
    } else if (follows || (policy == "adaptive" && exact)) {
      const std::optional<NumberFormat> wider = WiderOf(t);
      if (!wider) return advice;
      advice = FormatAdvice(config_, t.layer, t.tensor, *wider);
      advice.reason = Lost(t) + (follows ? ", the scale that it has of its own"
                                         : ", the scale that its layer can give it");
      advice.sure = "little";
    } else {
      advice.keys = ExactRange(config_);
      advice.reason += has_room
                           ? "; each layer has its own scale then"
                           : ", and others leave one scale no room: each layer has its own then";
    }
    return advice;
  }

  const RecommendOptions& options_;
  const RunRecord& record_;
  const config::Config& config_;
  std::vector<Advice> all_;
};

// A policy that finds S by itself is not to be replaced for a few small values; another constant
// costs nothing.
bool FindsScale(const config::Config& config) {
  return config.scaling.policy != "none" && config.scaling.policy != "fixed";
}

}  // namespace

std::string LostWords(const TensorTotals& t) {
  const std::string mean = PercentText(t.lost_mean());
  return mean == PercentText(t.lost_max) ? mean : telemetry::LostShares(t);
}

std::string LostWords(const RunRecord& record, const TensorNeeds& tensor) {
  const TensorTotals* totals = record.layers.FindTensor(tensor.layer, tensor.tensor);
  if (totals == nullptr) return PercentText(tensor.lost_pct);
  const std::string most = PercentText(totals->lost_max), mean = PercentText(totals->lost_mean());
  return mean == most ? most : most + " at most, " + mean + " on the mean,";
}

bool IsHarmless(const RunRecord& record, const TensorTotals& t) {
  const TensorNeeds* needs = record.needs.Find(t.name());
  return FindsScale(record.config) && needs != nullptr && !needs->silent() &&
         IsImmaterial(*needs) && 2 * needs->binned_lost_pct >= t.pct_mean();
}

std::vector<Advice> HistogramAdvice(const RecommendOptions& options, const RunRecord& record) {
  const RunNeeds& needs = record.needs;
  if (FindsScale(record.config) &&
      std::none_of(needs.tensors.begin(), needs.tensors.end(),
                   [&](const TensorNeeds& t) { return IsMaterial(t, options); }))
    return {};
  // The same recommendation as that of `ada-train recommend`, but only the parts that fix a loss of
  // values are used.
  const Recommendation recommended = MakeRecommendation(options, record);
  const char* sure = GradeOf(record);
  std::vector<Advice> all;
  // A scale for what loses at the one it had, in a format that stays.
  // In a format that changes, it is the scale as well where the one that it had does not serve.
  const TensorNeeds *worst = nullptr, *moved = nullptr;
  std::vector<std::string> mends, changed;
  for (const TensorNeeds& t : needs.tensors) {
    if (!IsBelieved(record, t.layer, t.tensor)) continue;
    // What vanishes below fp32's range is too small for any product, whatever its share.
    if (KeepsRange(t.format) && t.overflow == 0 && t.lost_magnitude_pct <= kMaterialPct) continue;
    if (IsChanged(recommended, t.name())) changed.push_back(t.name());
    if (!t.asks_for_s()) continue;
    if (const NumberFormat* format = ChangedFormat(recommended, t.name())) {
      const double power = std::log2(t.scale);
      if (!PowersFor(t, *format, options.headroom_bits).Hold(power, power) &&
          (moved == nullptr || t.lost_pct > moved->lost_pct))
        moved = &t;
      continue;
    }
    // Tensors that meet the target need no advice, even if the recommendation moves their scale.
    if (!t.Loses(options.underflow_target)) continue;
    mends.push_back(t.name());
    if (worst == nullptr || t.lost_pct > worst->lost_pct) worst = &t;
  }
  const TensorNeeds* asks = worst != nullptr ? worst : moved;
  if (asks != nullptr && AnyAsksForS(needs)) {
    if (std::optional<Advice> advice = ScaleAdvice(record, recommended, *asks, worst == nullptr)) {
      advice->sure = sure;
      // A scale for another format mends nothing without the line that gives it.
      advice->mends = mends;
      all.push_back(std::move(*advice));
    }
  }
  if (changed.empty()) return all;
  const std::optional<Keys> one = ActivationsKey(record.config.precision, recommended.changes);
  all.push_back({"precision", one ? *one : FormatKeys(record.config, recommended.config),
                 ReasonOf(record, recommended), sure, changed});
  return all;
}

std::vector<Advice> CountAdvice(const RecommendOptions& options, const RunRecord& record) {
  return CountAdvisor(options, record).Find();
}

}  // namespace ada::study
