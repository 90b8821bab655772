// Losses on two backends, checked against their definitions in double.
#include "backend/compare/compared_losses.h"

#include "backend/loss_formulas.h"

namespace ada::backend::compare {
namespace {

class ComparedClassLoss final : public AnyComparedLoss {
 public:
  ComparedClassLoss(Comparison& comparison, OpPair<LossOp> pair, const ClassLossSpec& spec)
      : AnyComparedLoss(comparison, std::move(pair)), spec_(spec) {}

 private:
  void Keep(const Targets& targets, int rows) override {
    labels_.assign(targets.labels, targets.labels + rows);
    second_labels_.clear(), shares_.clear();
    if (targets.second.labels == nullptr) return;
    second_labels_.assign(targets.second.labels, targets.second.labels + rows);
    shares_.assign(targets.second.shares, targets.second.shares + rows);
  }
  void Check(const std::string& phase, const Pass& pass, Checker& checker) override {
    if (phase != "backward" || !spec_.dlogits) return;
    const Softmax softmax(checker, spec_.logits, pass.rows);
    CheckScores("dx", spec_.dlogits, pass, checker, [&](std::int64_t i) {
      return ScoreBounds(softmax.P(i), Target(i / softmax.classes, i % softmax.classes), 1, pass,
                         spec_.dlogits, spec_.reference);
    });
  }
  double Target(std::int64_t image, std::int64_t k) const {
    const auto row = static_cast<std::size_t>(image);
    const double smoothing = Wide(spec_.label_smoothing);
    const double share = shares_.empty() ? 1 : Wide(shares_[row]);
    const double mine = labels_[row] == k ? share : 0.0;
    const double other = !shares_.empty() && second_labels_[row] == k ? 1 - share : 0.0;
    return smoothing / static_cast<double>(spec_.logits.shape.c) + (1 - smoothing) * (mine + other);
  }

  const ClassLossSpec spec_;
  std::vector<std::int32_t> labels_, second_labels_;
  std::vector<float> shares_;
};

class ComparedPixelLoss final : public AnyComparedLoss {
 public:
  ComparedPixelLoss(Comparison& comparison, OpPair<LossOp> pair, const PixelLossSpec& spec)
      : AnyComparedLoss(comparison, std::move(pair)), spec_(spec) {}

 private:
  void Keep(const Targets& targets, int rows) override {
    const Shape& shape = spec_.logits.shape;
    labels_.assign(targets.labels, targets.labels + rows * shape.h * shape.w);
  }
  void Check(const std::string& phase, const Pass& pass, Checker& checker) override {
    if (phase != "backward" || !spec_.dlogits) return;
    const Softmax softmax(checker, spec_.logits, pass.rows);
    CheckScores("dx", spec_.dlogits, pass, checker, [&](std::int64_t i) {
      const std::int32_t label = labels_[static_cast<std::size_t>(i / softmax.classes)];
      if (label < 0) return Interval{};
      return ScoreBounds(softmax.P(i), i % softmax.classes == label ? 1 : 0, Weight(label), pass,
                         spec_.dlogits, spec_.reference);
    });
  }
  double Weight(std::int32_t label) const {
    const auto i = static_cast<std::size_t>(label);
    return spec_.class_weights.empty() ? 1 : Wide(spec_.class_weights[i]);
  }

  const PixelLossSpec spec_;
  std::vector<std::int32_t> labels_;
};

// Locations have no sums, so their gradient is equal. Which boxes are hard negatives is free where
// their losses are nearly those of the last one chosen.
class ComparedMultiboxLoss final : public AnyComparedLoss {
 public:
  ComparedMultiboxLoss(Comparison& comparison, OpPair<LossOp> pair, const MultiboxLossSpec& spec)
      : AnyComparedLoss(comparison, std::move(pair)),
        spec_(spec),
        boxes_(spec.scores.shape.h * spec.scores.shape.w) {}

 private:
  enum class Part : std::uint8_t { kNone, kFree, kTaken };

  void Keep(const Targets& targets, int rows) override {
    labels_.assign(targets.labels, targets.labels + rows * boxes_);
  }
  void Check(const std::string& phase, const Pass& pass, Checker& checker) override {
    if (phase != "backward") return;
    if (spec_.dlocations) {
      checker.CheckScale("dx", spec_.dlocations.scale);
      checker.Check(OutputOf("dx", spec_.dlocations), pass);
    }
    if (!spec_.dscores) return;
    const Softmax softmax(checker, spec_.scores, pass.rows);
    const std::vector<Part> parts = Parts(softmax, pass.rows);
    CheckScores("dx2", spec_.dscores, pass, checker, [&](std::int64_t i) {
      const auto box = static_cast<std::size_t>(i / softmax.classes);
      if (parts[box] == Part::kNone) return Interval{};
      const double target = i % softmax.classes == labels_[box] ? 1 : 0;
      const Interval in =
          ScoreBounds(softmax.P(i), target, 1, pass, spec_.dscores, spec_.reference);
      if (parts[box] == Part::kTaken) return in;
      return Interval{std::min(in.low, 0.0), std::max(in.high, 0.0)};
    });
  }

  std::vector<Part> Parts(const Softmax& softmax, std::int64_t images) const {
    constexpr double kNear = 1e-6;
    std::vector<Part> parts(static_cast<std::size_t>(images * boxes_), Part::kNone);
    for (std::int64_t image = 0; image < images; ++image) {
      std::vector<std::pair<double, std::size_t>> negatives;  // loss, box
      std::int64_t positives = 0;
      for (std::int64_t box = image * boxes_; box < (image + 1) * boxes_; ++box) {
        const auto i = static_cast<std::size_t>(box);
        if (labels_[i] > 0) parts[i] = Part::kTaken, ++positives;
        if (labels_[i] != 0) continue;
        const auto background = static_cast<std::size_t>(box * softmax.classes);
        const double loss = softmax.log_sums[i] - Wide(softmax.scores[background]);
        negatives.emplace_back(std::isnan(loss) ? -1 : loss, i);
      }
      std::sort(negatives.begin(), negatives.end(), std::greater<>());
      const auto wanted = static_cast<std::size_t>(NegativesWanted(spec_.negatives, positives));
      if (wanted == 0) continue;
      const double last = wanted < negatives.size() ? negatives[wanted - 1].first : -INFINITY;
      for (const auto& [loss, i] : negatives) {
        const bool near = std::fabs(loss - last) <= kNear * (1 + std::fabs(last));
        parts[i] = near ? Part::kFree : loss > last ? Part::kTaken : Part::kNone;
      }
    }
    return parts;
  }

  const MultiboxLossSpec spec_;
  const std::int64_t boxes_;  // of an image
  std::vector<std::int32_t> labels_;
};

}  // namespace

std::unique_ptr<LossOp> CompareOp(Comparison& comparison, OpPair<LossOp> pair,
                                  const ClassLossSpec& spec) {
  return std::make_unique<ComparedClassLoss>(comparison, std::move(pair), spec);
}
std::unique_ptr<LossOp> CompareOp(Comparison& comparison, OpPair<LossOp> pair,
                                  const PixelLossSpec& spec) {
  return std::make_unique<ComparedPixelLoss>(comparison, std::move(pair), spec);
}
std::unique_ptr<LossOp> CompareOp(Comparison& comparison, OpPair<LossOp> pair,
                                  const MultiboxLossSpec& spec) {
  return std::make_unique<ComparedMultiboxLoss>(comparison, std::move(pair), spec);
}

}  // namespace ada::backend::compare
