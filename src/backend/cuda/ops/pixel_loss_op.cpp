// Softmax cross-entropy of pixels, with weights of classes and pixels without a label.
#include <cstring>
#include <vector>

#include "backend/cuda/kernels/row_losses.h"
#include "backend/cuda/op_makers.h"
#include "backend/cuda/ops/loss_gradient.h"
#include "backend/cuda/ops/loss_total.h"
#include "error.h"

namespace ada::backend::cuda {
namespace {

// The op of a PixelLossSpec, for pixels and for tokens: SetTargets, then Forward, then Backward for
// the same rows. Forward keeps the logarithm of each row's sum, by which Backward computes
// probabilities anew.
class CudaPixelLoss final : public LossOp {
 public:
  CudaPixelLoss(const Context& context, const PixelLossSpec& spec)
      : context_(context),
        spec_(spec),
        pixels_(spec.logits.shape.h * spec.logits.shape.w),
        labels_(context.shared.Allocate(static_cast<std::size_t>(spec.logits.shape.n * pixels_) *
                                        sizeof(std::int32_t))),
        total_(context, PixelLossRows::Blocks(spec.logits.shape.n * pixels_)),
        out_(context, spec.dlogits, spec.reference),
        log_sums_(context.Allocate<double>(spec.logits.shape.n * pixels_)) {
    // Kernels read a weight for every class; without weights each is 1, which changes no bit.
    std::vector<float> weights = spec.class_weights;
    const auto classes = static_cast<std::size_t>(spec.logits.shape.c);
    ADA_CHECK(weights.empty() || weights.size() == classes);
    weights.resize(classes, 1.0f);
    weights_ = context.Keep(weights);
  }

  void SetTargets(const Targets& targets, int rows) override {
    ADA_CHECK(targets.second.labels == nullptr && rows <= spec_.logits.shape.n);
    const std::int64_t count = rows * pixels_;
    // A negative label means that the pixel is ignored, so it is allowed.
    for (std::int64_t i = 0; i < count; ++i) ADA_CHECK(targets.labels[i] < spec_.logits.shape.c);
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(std::int32_t);
    std::memcpy(labels_.host, targets.labels, bytes);
    context_.shared.Send({labels_.backend, labels_.host, bytes});
  }

  void Forward(const Pass& pass) override {
    const std::int64_t rows = pass.rows * pixels_, blocks = PixelLossRows::Blocks(rows);
    // A thread a row: pixels are many and classes few. Each block of threads leaves one part of the
    // sum.
    total_.Launch(pass, PixelLossRows{Rows(), rows, Labels(), weights_, log_sums_, total_.parts()},
                  blocks);
  }

  void Backward(const Pass& pass) override {
    out_.Round(pass, RowGradient{Rows(), Labels(), weights_, log_sums_, context_.pass});
  }

  LossResult Result() override { return total_.Result(); }

 private:
  ScoreRows Rows() const { return {SpanOf(spec_.logits), spec_.logits.shape.c}; }
  const std::int32_t* Labels() const {
    return reinterpret_cast<const std::int32_t*>(labels_.backend);
  }

  Context context_;
  PixelLossSpec spec_;
  std::int64_t pixels_;  // of an image
  SharedMemory labels_;
  LossTotal total_;
  LossGradient out_;
  double* log_sums_;
  const float* weights_ = nullptr;
};

}  // namespace

std::unique_ptr<LossOp> MakeLossOp(const Context& context, const PixelLossSpec& spec) {
  return std::make_unique<CudaPixelLoss>(context, spec);
}

}  // namespace ada::backend::cuda
