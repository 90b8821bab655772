// Softmax cross-entropy of pixels, with weights of classes and pixels without a label.
#include <vector>

#include "backend/cpu/ops/loss_gradient.h"
#include "backend/cpu/ops/ops.h"
#include "backend/cpu/ops/softmax_rows.h"
#include "backend/formulas.h"
#include "backend/loss_formulas.h"
#include "error.h"

namespace ada::backend::cpu {
namespace {

// The op of a PixelLossSpec: SetTargets, then Forward, then Backward for the same rows. A pixel
// with a negative label is ignored: it is in no sum, and its gradient is exactly 0.
class CpuPixelLoss final : public LossOp {
 public:
  CpuPixelLoss(const Context& context, const PixelLossSpec& spec)
      : context_(context),
        spec_(spec),
        rows_(context, spec.logits),
        out_(spec.dlogits, spec.reference),
        weights_(spec.class_weights.begin(), spec.class_weights.end()),
        parts_(static_cast<std::size_t>(rows_.chunks(spec.logits.shape.n))) {
    weights_.resize(static_cast<std::size_t>(spec.logits.shape.c), 1.0);
    ADA_CHECK(spec.class_weights.empty() || spec.class_weights.size() == weights_.size());
  }

  void SetTargets(const Targets& targets, int rows) override {
    ADA_CHECK(targets.second.labels == nullptr && rows <= spec_.logits.shape.n);
    labels_.assign(targets.labels, targets.labels + rows_.rows_of(rows));
    // A negative label means that the pixel is ignored, so it is allowed.
    for (const std::int32_t label : labels_) ADA_CHECK(label < spec_.logits.shape.c);
  }

  void Forward(const Pass& pass) override {
    ADA_CHECK(static_cast<std::size_t>(rows_.rows_of(pass.rows)) == labels_.size());
    // Each chunk of rows adds up its own part, and parts are added in the order of chunks, which
    // the shape alone cuts.
    std::fill(parts_.begin(), parts_.end(), LossResult{});
    rows_.Forward(context_, pass.rows, labels_.data(),
                  [this](std::int64_t chunk, std::int64_t row, double mine, double log_sum,
                         std::int32_t better) {
                    LossResult& part = parts_[static_cast<std::size_t>(chunk)];
                    part.loss_sum +=
                        Weight(labels_[static_cast<std::size_t>(row)]) * (log_sum - mine);
                    part.top1 += Hits(mine, better, 1), part.top5 += Hits(mine, better, 5);
                  });
    LossResult sum;
    for (const LossResult& part : parts_) sum.Add(part);
    if (!pass.accumulate) total_ = LossResult{};
    total_.Add(sum);
  }

  void Backward(const Pass& pass) override {
    // Each class has the factor of its weight over Pass::loss_terms labeled pixels.
    std::vector<double> factors;
    for (const double weight : weights_) factors.push_back(TermFactor(weight, pass.loss_terms));
    out_.Round(context_, pass, [&](std::int64_t image, std::int64_t n, int worker) {
      return rows_.Gradient(context_, image, n, worker, labels_.data(), factors.data());
    });
  }

  LossResult Result() override { return total_; }

 private:
  double Weight(std::int32_t label) const { return weights_[static_cast<std::size_t>(label)]; }

  Context context_;
  PixelLossSpec spec_;
  SoftmaxRows rows_;
  LossGradient out_;
  std::vector<double> weights_;    // by class
  std::vector<LossResult> parts_;  // by chunk
  std::vector<std::int32_t> labels_;
  LossResult total_;
};

}  // namespace

std::unique_ptr<LossOp> MakeLossOp(const Context& c, const PixelLossSpec& s) {
  return std::make_unique<CpuPixelLoss>(c, s);
}

}  // namespace ada::backend::cpu
