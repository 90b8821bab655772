// What lies at the ends of a pass, on two backends: input and loss; and ops that are exact.
#include <algorithm>

#include "backend/compare/bounds.h"
#include "backend/compare/compared_op.h"

namespace ada::backend::compare {
namespace {

class ComparedInput final : public ComparedOp<InputOp> {
 public:
  ComparedInput(Comparison& comparison, OpPair<InputOp> pair, const InputSpec& spec)
      : ComparedOp(comparison, std::move(pair)), spec_(spec) {}
  void SetImages(const float* images, int rows) override {
    first().SetImages(images, rows), second().SetImages(images, rows);
  }

 private:
  void Check(const std::string& phase, const Pass& pass, Checker& checker) override {
    if (phase == "forward")
      checker.Check(OutputOf("y", spec_.y, spec_.y_style, spec_.y_stats), pass);
  }
  const InputSpec spec_;
};

// Logarithms in double: the fp32 gradient of a value may fall to either side of a boundary.
class ComparedLoss final : public ComparedOp<LossOp> {
 public:
  ComparedLoss(Comparison& comparison, OpPair<LossOp> pair, const LossSpec& spec)
      : ComparedOp(comparison, std::move(pair)), spec_(spec) {}
  void SetLabels(const std::int32_t* labels, int rows) override {
    labels_.assign(labels, labels + rows);
    second_labels_.clear(), shares_.clear();
    first().SetLabels(labels, rows), second().SetLabels(labels, rows);
  }
  void SetSecondLabels(const SecondLabels& both, int rows) override {
    second_labels_.assign(both.labels, both.labels + rows);
    shares_.assign(both.shares, both.shares + rows);
    first().SetSecondLabels(both, rows), second().SetSecondLabels(both, rows);
  }
  LossResult Result() override {
    const LossResult a = first().Result(), b = second().Result();
    Checker checker = MakeChecker("result");
    checker.CheckNumber("loss", a.loss_sum, b.loss_sum, kDoubleSums * std::fabs(a.loss_sum));
    checker.CheckNumber("top1", static_cast<double>(a.top1), static_cast<double>(b.top1), 0);
    checker.CheckNumber("top5", static_cast<double>(a.top5), static_cast<double>(b.top5), 0);
    return a;
  }

 private:
  void Check(const std::string& phase, const Pass& pass, Checker& checker) override {
    if (phase != "backward" || !spec_.dlogits) return;
    checker.CheckScale("dx", spec_.dlogits.scale);
    logits_ = checker.addresses().Values(0, spec_.logits, pass.rows);
    const FunctionBounds bounds([&](std::int64_t i) { return Before(i, pass); });
    checker.Check(OutputOf("dx", spec_.dlogits), pass, &bounds);
  }
  Interval Before(std::int64_t i, const Pass& pass) const {
    const std::int64_t classes = spec_.logits.shape.c, row = i / classes;
    const float* z = logits_.data() + row * classes;
    double highest = -INFINITY, sum = 0;
    for (std::int64_t k = 0; k < classes; ++k) highest = std::max(highest, Wide(z[k]));
    for (std::int64_t k = 0; k < classes; ++k) sum += std::exp(Wide(z[k]) - highest);
    const double smoothing = Wide(spec_.label_smoothing),
                 p = std::exp(Wide(z[i % classes]) - highest) / sum;
    const double target = Target(static_cast<std::size_t>(row), i % classes, classes, smoothing);
    const auto rows = static_cast<double>(pass.loss_rows);
    const double g = (p - target) / rows, error = 0x1p-40 * (p + target) / rows;
    Interval in = {g - error, g + error};
    if (!in.finite()) return in;
    if (spec_.reference) in = RoundedTo(spec_.dlogits.tensor.format, in);
    const Ends ends = EndsOf(in);
    return {static_cast<double>(ends.low * pass.loss_scale),
            static_cast<double>(ends.high * pass.loss_scale)};
  }

  double Target(std::size_t row, std::int64_t k, std::int64_t classes, double smoothing) const {
    const double share = shares_.empty() ? 1 : Wide(shares_[row]);
    const double mine = labels_[row] == k ? share : 0.0;
    const double other = !shares_.empty() && second_labels_[row] == k ? 1 - share : 0.0;
    return smoothing / static_cast<double>(classes) + (1 - smoothing) * (mine + other);
  }

  const LossSpec spec_;
  std::vector<std::int32_t> labels_, second_labels_;
  std::vector<float> shares_;
  std::vector<float> logits_;
};

}  // namespace

void ExactOp::Check(const std::string& phase, const Pass& pass, Checker& checker) {
  if (phase == "refresh weights") return;
  const bool is_backward = phase == "backward";
  if (is_backward) checker.CheckScaler(scaler, nullptr, 0), checker.CheckDecision(decision);
  for (const Output& out : is_backward ? backward : forward) {
    if (is_backward) checker.CheckScale(out.name, out.scale);
    if (out.tensor) checker.Check(out, pass);
  }
}

std::unique_ptr<InputOp> CompareOp(Comparison& comparison, OpPair<InputOp> pair,
                                   const InputSpec& spec) {
  return std::make_unique<ComparedInput>(comparison, std::move(pair), spec);
}
std::unique_ptr<LossOp> CompareOp(Comparison& comparison, OpPair<LossOp> pair,
                                  const LossSpec& spec) {
  return std::make_unique<ComparedLoss>(comparison, std::move(pair), spec);
}

}  // namespace ada::backend::compare
