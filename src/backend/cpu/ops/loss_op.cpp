// Softmax cross-entropy of images. Few values (rows x classes), so plain loops in double; the
// gradient is rounded once to fp32 and once, scaled, to its format.
#include <algorithm>
#include <cmath>
#include <vector>

#include "backend/cpu/ops/loss_gradient.h"
#include "backend/cpu/ops/ops.h"
#include "backend/cpu/rounding/blocks.h"
#include "backend/formulas.h"
#include "error.h"

namespace ada::backend::cpu {
namespace {

// The op of a ClassLossSpec: SetTargets, then Forward, then Backward for the same rows. Forward
// computes the gradient as well, so that Backward only scales and rounds.
class CpuLoss final : public LossOp {
 public:
  CpuLoss(const Context& context, const ClassLossSpec& spec)
      : context_(context),
        spec_(spec),
        out_(spec.dlogits, spec.reference),
        logits_(static_cast<std::size_t>(spec.logits.shape.numel())),
        gradient_(logits_.size()),
        log_p_(logits_.size()) {}

  void SetTargets(const Targets& targets, int rows) override {
    const SecondLabels& second = targets.second;
    ADA_CHECK(second.labels == nullptr || spec_.mixes);
    ADA_CHECK(rows <= spec_.logits.shape.n);
    labels_.assign(targets.labels, targets.labels + rows);
    second_.clear(), shares_.clear();
    if (second.labels != nullptr) {
      second_.assign(second.labels, second.labels + rows);
      shares_.assign(second.shares, second.shares + rows);
    }
    for (const auto* labels : {&labels_, &second_})
      for (const std::int32_t label : *labels)
        ADA_CHECK(label >= 0 && label < spec_.logits.shape.c);
  }

  void Forward(const Pass& pass) override {
    ADA_CHECK(static_cast<std::size_t>(pass.rows) == labels_.size());
    const std::int64_t c = spec_.logits.shape.c;
    context_.kernels.widen(At(spec_.logits, 0), logits_.data(), pass.rows * c);
    result_ = LossResult{};
    // Rows are computed in parallel and added up one after the other, so that the sum does not
    // depend on the number of threads.
    constexpr std::int64_t kRows = 16;
    context_.pool.For(BlockCount(pass.rows, kRows), [&](std::int64_t block, int) {
      const std::int64_t end = std::min<std::int64_t>(pass.rows, (block + 1) * kRows);
      for (std::int64_t row = block * kRows; row < end; ++row) Row(pass, row);
    });
    for (std::int64_t row = 0; row < pass.rows; ++row) AddRow(row);
    if (!pass.accumulate) total_ = LossResult{};
    total_.Add(result_);
  }

  void Backward(const Pass& pass) override {
    const std::int64_t c = spec_.logits.shape.c;
    out_.Round(context_, pass,
               [&](std::int64_t image, std::int64_t, int) { return gradient_.data() + image * c; });
  }

  LossResult Result() override { return total_; }

 private:
  // The target of class k: one label, or two with their shares, smoothed over all classes.
  double Target(std::int64_t k, std::int64_t row) const {
    const auto i = static_cast<std::size_t>(row);
    const auto smoothing = static_cast<double>(spec_.label_smoothing);
    const std::int64_t classes = spec_.logits.shape.c;
    if (second_.empty()) return TargetOf(k, labels_[i], classes, smoothing);
    return MixedTargetOf(k, labels_[i], second_[i], shares_[i], classes, smoothing);
  }
  // The label that hits are counted of: the one with the larger share, of equals the first.
  std::int64_t LabelOf(std::int64_t row) const {
    const auto i = static_cast<std::size_t>(row);
    return second_.empty() || shares_[i] >= 0.5f ? labels_[i] : second_[i];
  }
  // The row's logarithms and unscaled gradient (p - target) / loss_terms.
  // The highest logit is subtracted before exponentials, which then cannot overflow. A NaN among
  // the logits makes the whole row's gradient NaN.
  void Row(const Pass& pass, std::int64_t row) {
    const std::int64_t c = spec_.logits.shape.c;
    const float* z = logits_.data() + row * c;
    double highest = -INFINITY;
    for (std::int64_t k = 0; k < c; ++k) highest = std::max(highest, static_cast<double>(z[k]));
    double sum = 0;
    for (std::int64_t k = 0; k < c; ++k) sum += std::exp(static_cast<double>(z[k]) - highest);
    const double log_sum = highest + std::log(sum);
    for (std::int64_t k = 0; k < c; ++k) {
      const double log_p = static_cast<double>(z[k]) - log_sum;
      const auto i = static_cast<std::size_t>(row * c + k);
      log_p_[i] = log_p;
      gradient_[i] = LogitGradient(log_p, Target(k, row), pass.loss_terms);
    }
  }
  // Adds the row's loss and hits to the result.
  // Targets of 0 are left out of the sum: 0 * ln(0) would be NaN.
  void AddRow(std::int64_t row) {
    const std::int64_t c = spec_.logits.shape.c;
    const float* z = logits_.data() + row * c;
    const std::int64_t label = LabelOf(row);
    const auto mine = static_cast<double>(z[label]);
    std::int64_t better = 0;
    for (std::int64_t k = 0; k < c; ++k) {
      const double target = Target(k, row);
      if (target != 0) result_.loss_sum -= target * log_p_[static_cast<std::size_t>(row * c + k)];
      better += ComesBefore(static_cast<double>(z[k]), k, mine, label) ? 1 : 0;
    }
    result_.top1 += Hits(mine, better, 1);
    result_.top5 += Hits(mine, better, 5);
  }

  Context context_;
  ClassLossSpec spec_;
  LossGradient out_;
  std::vector<float> logits_, gradient_;
  std::vector<double> log_p_;
  std::vector<std::int32_t> labels_, second_;
  std::vector<float> shares_;  // second_ and this: empty where rows have one label
  LossResult result_, total_;  // of this Forward, and of those that it goes on with
};

}  // namespace

std::unique_ptr<LossOp> MakeLossOp(const Context& c, const ClassLossSpec& s) {
  return std::make_unique<CpuLoss>(c, s);
}

}  // namespace ada::backend::cpu
