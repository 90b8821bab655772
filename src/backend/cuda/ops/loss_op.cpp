// The loss of images forward: a launch over rows, whose last block adds them up; backward: the
// gradient that is there already, scaled and rounded.
#include <cstring>

#include "backend/cuda/kernels/loss.h"
#include "backend/cuda/op_makers.h"
#include "backend/cuda/ops/loss_gradient.h"
#include "backend/cuda/ops/loss_total.h"
#include "error.h"

namespace ada::backend::cuda {
namespace {

// The op of a ClassLossSpec: SetTargets, then Forward, then Backward for the same rows. A block of
// threads a row computes loss, hits and unscaled gradient in double.
class CudaLoss final : public LossOp {
 public:
  CudaLoss(const Context& context, const ClassLossSpec& spec)
      : context_(context),
        spec_(spec),
        labels_(context.shared.Allocate(static_cast<std::size_t>(spec.logits.shape.n) *
                                        sizeof(std::int32_t))),
        total_(context, spec.logits.shape.n),
        out_(context, spec.dlogits, spec.reference) {
    if (spec.mixes)
      mixes_ =
          context.shared.Allocate(static_cast<std::size_t>(spec.logits.shape.n) * sizeof(RowMix));
    // Forward writes the unscaled gradient; in an evaluation there is none.
    if (spec.dlogits) gradient_ = context.Allocate<float>(spec.logits.shape.numel());
  }

  void SetTargets(const Targets& targets, int rows) override {
    ADA_CHECK(rows <= spec_.logits.shape.n);
    ADA_CHECK(targets.second.labels == nullptr || spec_.mixes);
    CheckLabels(targets.labels, rows);
    const std::size_t bytes = static_cast<std::size_t>(rows) * sizeof(std::int32_t);
    std::memcpy(labels_.host, targets.labels, bytes);
    context_.shared.Send({labels_.backend, labels_.host, bytes});
    if (targets.second.labels != nullptr) CheckLabels(targets.second.labels, rows);
    // A graph whose rows may have two labels reads the mixes in every batch, so that they are sent
    // also where this batch has one label a row.
    if (spec_.mixes) SendMixes(targets.second, rows);
  }
  std::int32_t* LabelMemory() override { return reinterpret_cast<std::int32_t*>(labels_.backend); }

  void Forward(const Pass& pass) override {
    LossRow row;
    row.logits = SpanOf(spec_.logits), row.classes = spec_.logits.shape.c;
    row.labels = LabelMemory(), row.smoothing = static_cast<double>(spec_.label_smoothing);
    row.mixes = reinterpret_cast<const RowMix*>(mixes_.backend);
    row.pass = context_.pass, row.gradient = gradient_, row.results = total_.parts();
    total_.Launch(pass, row, pass.rows);
  }

  void Backward(const Pass& pass) override { out_.Round(pass, StoredGradient{gradient_}); }

  LossResult Result() override { return total_.Result(); }

 private:
  // A label that is no class would read memory that is not the row's.
  void CheckLabels(const std::int32_t* labels, int rows) const {
    for (int row = 0; row < rows; ++row)
      ADA_CHECK(labels[row] >= 0 && labels[row] < spec_.logits.shape.c);
  }
  // Rows without a second label have the share 1 of the first.
  void SendMixes(const SecondLabels& second, int rows) {
    auto* mixes = reinterpret_cast<RowMix*>(mixes_.host);
    for (int row = 0; row < rows; ++row)
      mixes[row] =
          second.labels != nullptr ? RowMix{second.labels[row], second.shares[row]} : RowMix{0, 1};
    context_.shared.Send(
        {mixes_.backend, mixes_.host, static_cast<std::size_t>(rows) * sizeof(RowMix)});
  }

  Context context_;
  ClassLossSpec spec_;
  SharedMemory labels_, mixes_;  // mixes_: RowMix [n], where rows may have two labels
  LossTotal total_;
  float* gradient_ = nullptr;  // unscaled
  LossGradient out_;
};

}  // namespace

std::unique_ptr<LossOp> MakeLossOp(const Context& context, const ClassLossSpec& spec) {
  return std::make_unique<CudaLoss>(context, spec);
}

}  // namespace ada::backend::cuda
