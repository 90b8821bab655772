// How scales and formats are recommended. A scale that suits every gradient is the simplest answer;
// formats change only if no scale suits a tensor; adaptive scales are for the remaining cases.
#include <algorithm>
#include <cmath>

#include "io/text.h"
#include "judge/scale_path.h"
#include "study/advise/run_record.h"

namespace ada::study {
namespace {

// Formats that machines have, from narrow to wide.
constexpr NumberFormat kLadder[] = {kFp8E4M3, kFp8E5M2, kFp16, kBf16, kFp32};
constexpr int kRounds = 3;  // of formats that a prediction asks for
constexpr int kMargin = 8;  // powers of two kept free above the smallest scale, if possible

double Bits(const NumberFormat& format) { return judge::BitsOf(format); }

// Used once: Make. Formats are changed in a copy as decisions are made, so that later ones and
// predictions see them.
class Recommender {
 public:
  Recommender(const RecommendOptions& options, const RunRecord& record)
      : options_(options),
        history_(record.history),
        formats_(record.formats),
        needs_(record.needs),
        path_(record.config.model) {
    advice_.config = record.config;
    for (const TensorNeeds& t : needs_.tensors)
      owners_.push_back(t.carries_s() ? path_.FormatOwner(t.layer, t.tensor) : t.layer);
  }

  // The compromise is computed before formats change, since it is about the formats as they are.
  Recommendation Make() {
    FindCompromise();
    for (const TensorNeeds& tensor : needs_.tensors) ChangeWhereNoScaleHelps(tensor);
    FindOneScale();
    // Where the run's policy has replaced the per-tensor scales of gradients, one S would bring
    // them back.
    const bool replaced =
        advice_.config.precision.tensor_scaling.kind ==
            config::TensorScalingConfig::Kind::kDelayed &&
        std::none_of(needs_.tensors.begin(), needs_.tensors.end(),
                     [](const TensorNeeds& t) { return t.carries_s() && t.scaled_by_itself; });
    if (AnyArrived(needs_) && !AnyAsksForS(needs_)) {
      advice_.predicted = Predict({});  // the scaling stays as it is
    } else {
      advice_.fixed = advice_.one_scale.any() && !replaced;
      advice_.fixed ? TakeFixed() : TakeAdaptive();
    }
    ApplyFormats(advice_.changes, OwnersByRole(), advice_.config.precision);
    return std::move(advice_);
  }

 private:
  const NumberFormat& FormatOf(const TensorNeeds& t) const {
    return formats_.at({t.layer, t.tensor});
  }
  Powers PowersOf(const TensorNeeds& t) const {
    return PowersFor(t, FormatOf(t), options_.headroom_bits);
  }
  // Whose entry in precision.layers sets the format of a tensor of needs_; "": none can.
  const std::string& OwnerOf(const TensorNeeds& t) const {
    return owners_[static_cast<std::size_t>(&t - needs_.tensors.data())];
  }

  // The narrowest format as wide as the tensor's own at least in which `serves` is true.
  // Formats that are as wide but have other bits for the exponent count too: e5m2 for e4m3. A
  // tensor that no format of the ladder serves stays as it is.
  template <class Serves>
  void Widen(const TensorNeeds& tensor, const Serves& serves) {
    const NumberFormat own = FormatOf(tensor);
    for (NumberFormat format : kLadder) {
      if (format != kFp32) format.saturate = own.saturate;
      if (Bits(format) < Bits(own) || RoundedLike(format, own) == own || !serves(format)) continue;
      return Change(tensor, format);
    }
  }

  // Tensors with one owner and role have one format, so a change for one of them is a change for
  // all.
  void Change(const TensorNeeds& tensor, const NumberFormat& format) {
    const std::string owner = OwnerOf(tensor), role = RoleOf(tensor.tensor);
    if (owner.empty()) return;
    const auto same = [&](const FormatChange& c) { return c.layer == owner && c.role == role; };
    auto& changes = advice_.changes;
    auto change = std::find_if(changes.begin(), changes.end(), same);
    if (change == changes.end()) change = changes.insert(change, {owner, role, format, {}});
    change->format = format;
    if (!Contains(change->tensors, tensor.name())) change->tensors.push_back(tensor.name());
    for (const TensorNeeds& other : needs_.tensors)
      if (OwnerOf(other) == owner && RoleOf(other.tensor) == role)
        formats_[{other.layer, other.tensor}] = changed_[{other.layer, other.tensor}] = format;
  }

  void ChangeWhereNoScaleHelps(const TensorNeeds& tensor) {
    const bool lost = tensor.Loses(options_.underflow_target);
    if (tensor.carries_s()) {
      if (tensor.scaled_by_itself ? !lost : PowersOf(tensor).any()) return;
      // A tensor without a scale is judged at S = 1, without headroom: its values are what they
      // are.
      return Widen(tensor, [&](const NumberFormat& format) {
        return PowersFor(tensor, format, options_.headroom_bits).any();
      });
    }
    if (!lost) return;
    Widen(tensor,
          [&](const NumberFormat& format) { return PowersFor(tensor, format, 0).Hold(0, 0); });
  }

  // The intersection of all ranges, and by whom its ends are set.
  void FindOneScale() {
    for (const TensorNeeds& tensor : needs_.tensors) {
      if (!tensor.asks_for_s() || tensor.silent()) continue;
      const Powers powers = PowersOf(tensor);
      advice_.one_scale.loses_ties = powers.loses_ties;
      if (advice_.low_by.empty() || powers.low > advice_.one_scale.low) {
        advice_.one_scale.low = powers.low;
        advice_.low_by = tensor.name();
      }
      if (advice_.high_by.empty() || powers.high < advice_.one_scale.high) {
        advice_.one_scale.high = powers.high;
        advice_.high_by = tensor.name();
      }
    }
  }

  void FindCompromise() {
    Powers all;
    for (const TensorNeeds& tensor : needs_.tensors) {
      if (!tensor.asks_for_s()) continue;
      const Powers powers = PowersOf(tensor);
      all = {std::max(all.low, powers.low), std::min(all.high, powers.high)};
    }
    if (all.any()) return;
    advice_.compromise_power = all.high;
    config::WhatIfConfig choice;
    // The largest scale at which nothing overflows: overflows cost whole steps.
    choice.scaling = FixedAt(all.high);
    advice_.compromise = Predict(choice);
  }

  // 2^k in the middle of what is safe, but no more than kMargin above the smallest, and 1 rather
  // than less. Where much was lost the smallest is not to be trusted (the largest is: large values
  // survive): three quarters of the way up.
  int Within(const Powers& powers) const {
    const int width = powers.high - powers.low;
    const bool trusted = !MuchWasLost(needs_);
    const int k = std::max(
        powers.low + (trusted ? std::min(width / 2, kMargin) : width - width / 4), powers.sure());
    return trusted && k < 0 ? std::min(0, powers.high) : k;
  }

  static scaling::Settings FixedAt(int power) {
    scaling::Settings scaling;
    scaling.policy = "fixed";
    scaling.scale = std::ldexp(1.0, power);
    return scaling;
  }

  void TakeFixed() {
    const int power = Within(advice_.one_scale);
    advice_.config.scaling = power == 0 ? scaling::Settings() : FixedAt(power);
    config::WhatIfConfig choice;
    choice.scaling = advice_.config.scaling;
    advice_.predicted = Predict(choice);
  }

  // The clamp keeps the target within what the key accepts.
  void TakeAdaptive() {
    scaling::Settings scaling;
    scaling.policy = "adaptive";
    scaling.adaptive.method = scaling::LayerMethod::kExactRange;
    scaling.adaptive.underflow_target = std::clamp(options_.underflow_target, 1e-9, 0.999);
    scaling.adaptive.headroom_bits = options_.headroom_bits;
    scaling.adaptive.u_min = advice_.config.scaling.adaptive.u_min;
    scaling.init_scale = std::ldexp(1.0, StartPower());
    config::WhatIfConfig choice;
    choice.scaling = scaling;
    advice_.predicted = Predict(choice);
    TryBatchNorms(choice);
    advice_.config.scaling = *choice.scaling;
    // Each change of a format changes what others lose, so it is predicted anew, a few times at
    // most.
    for (int round = 0; round < kRounds && ChangeWhereLayersCannotHelp(); ++round)
      advice_.predicted = Predict(choice);
  }

  // Before formats are changed: whether batch norms that choose for themselves lose less.
  void TryBatchNorms(config::WhatIfConfig& choice) {
    const std::size_t bad = CountBad(advice_.predicted);
    if (bad == 0) return;
    choice.scaling->adaptive.batch_norm = true;
    std::vector<Predicted> predicted = Predict(choice);
    choice.scaling->adaptive.batch_norm = CountBad(predicted) < bad;
    if (choice.scaling->adaptive.batch_norm) advice_.predicted = std::move(predicted);
  }
  bool IsGood(const Predicted& found) const {
    return judge::MeetsTarget(found.lost_pct, found.overflow, options_.underflow_target);
  }
  std::size_t CountBad(const std::vector<Predicted>& predicted) const {
    std::size_t bad = 0;
    for (std::size_t i = 0; i < predicted.size(); ++i)
      if (needs_.tensors[i].carries_s() && !IsGood(predicted[i])) ++bad;
    return bad;
  }

  // The start power of the logit gradient. Before a layer has seen a gradient exact_range chooses
  // no factor, so step 1 carries this scale everywhere: no gradient may overflow at it. What asks
  // for at least so much is the first narrow gradient and those before it; wide ones ask for
  // nothing.
  int StartPower() const {
    Powers start;
    bool narrow = false;
    for (const TensorNeeds& tensor : needs_.tensors) {
      if (!tensor.asks_for_s() || tensor.silent()) continue;
      const Powers powers = PowersOf(tensor);
      start.loses_ties = powers.loses_ties;
      start.high = std::min(start.high, powers.high);
      if (!narrow) start.low = std::max(start.low, powers.low);
      narrow = narrow || Bits(FormatOf(tensor)) < Bits(kFp32);
    }
    if (!narrow) return std::min(0, start.high);
    return start.any() ? Within(start) : start.high;
  }

  // Gradients that carry the scale of another layer's choice (of branches) and lose too much at it.
  // Whether there were any.
  bool ChangeWhereLayersCannotHelp() {
    const std::size_t before = Changed();
    for (std::size_t i = 0; i < needs_.tensors.size(); ++i) {
      const TensorNeeds& tensor = needs_.tensors[i];
      const Predicted& found = advice_.predicted[i];
      if (IsGood(found) || !tensor.carries_s()) continue;
      const double low = std::log2(found.scale_low), high = std::log2(found.scale_high);
      Widen(tensor, [&](const NumberFormat& format) {
        return PowersFor(tensor, format, 0).Hold(low, high);
      });
    }
    return Changed() > before;
  }
  std::size_t Changed() const {
    std::size_t tensors = 0;
    for (const FormatChange& change : advice_.changes) tensors += change.tensors.size();
    return tensors;
  }

  // Reads the histograms of the run once more, for each choice.
  std::vector<Predicted> Predict(const config::WhatIfConfig& choice) const {
    return PredictLosses(options_.folder, history_, changed_, needs_, choice, advice_.config.model);
  }

  // The layers whose formats the recorded tensors have.
  Owners OwnersByRole() const {
    Owners owners;
    for (const TensorNeeds& tensor : needs_.tensors)
      owners[RoleOf(tensor.tensor)].insert(OwnerOf(tensor));
    return owners;
  }

  const RecommendOptions& options_;
  const FormatHistory& history_;
  TensorFormats formats_;  // the last ones, as changed so far
  TensorFormats changed_;  // those among them that were changed
  const RunNeeds& needs_;
  judge::ScalePath path_;
  std::vector<std::string> owners_;  // of needs_.tensors, in their order
  Recommendation advice_;
};

}  // namespace

Recommendation MakeRecommendation(const RecommendOptions& options, const RunRecord& record) {
  return Recommender(options, record).Make();
}

}  // namespace ada::study
