// The loss forward: a launch over rows and one that adds them up; backward: the gradient that is
// there already, scaled and rounded.
#include <cstring>

#include "backend/cuda/kernels/loss.h"
#include "backend/cuda/ops/ops.h"
#include "backend/cuda/ops/rounding_stats.h"
#include "core/error.h"

namespace ada::backend::cuda {
namespace {

class CudaLoss final : public LossOp {
 public:
  CudaLoss(const Context& context, const LossSpec& spec)
      : context_(context),
        spec_(spec),
        labels_(context.shared.Allocate(static_cast<std::size_t>(spec.logits.shape.n) *
                                        sizeof(std::int32_t))),
        result_(context.shared.Allocate(sizeof(LossResult))),
        rows_(context.Allocate<RowResult>(spec.logits.shape.n)) {
    if (spec.mixes)
      mixes_ =
          context.shared.Allocate(static_cast<std::size_t>(spec.logits.shape.n) * sizeof(RowMix));
    if (!spec.dlogits) return;
    stats_ = RoundingStats(context, spec.dlogits);
    gradient_ = context.Allocate<float>(spec.logits.shape.numel());
    if (spec.reference) before_ = GridOf(spec.dlogits.tensor.format);
  }

  void SetLabels(const std::int32_t* labels, int rows) override {
    ADA_CHECK(rows <= spec_.logits.shape.n);
    for (int row = 0; row < rows; ++row)
      ADA_CHECK(labels[row] >= 0 && labels[row] < spec_.logits.shape.c);
    const std::size_t bytes = static_cast<std::size_t>(rows) * sizeof(std::int32_t);
    std::memcpy(labels_.host, labels, bytes);
    context_.shared.Send({labels_.backend, labels_.host, bytes});
    if (spec_.mixes) SendMixes({}, rows);
  }
  void SetSecondLabels(const SecondLabels& second, int rows) override {
    ADA_CHECK(spec_.mixes && rows <= spec_.logits.shape.n);
    for (int row = 0; row < rows; ++row)
      ADA_CHECK(second.labels[row] >= 0 && second.labels[row] < spec_.logits.shape.c);
    SendMixes(second, rows);
  }
  std::int32_t* LabelMemory() override { return reinterpret_cast<std::int32_t*>(labels_.backend); }

  void Forward(const Pass& pass) override {
    LossRow row;
    row.logits = SpanOf(spec_.logits), row.classes = spec_.logits.shape.c;
    row.labels = LabelMemory(), row.smoothing = static_cast<double>(spec_.label_smoothing);
    row.mixes = reinterpret_cast<const RowMix*>(mixes_.backend);
    row.pass = context_.pass, row.gradient = gradient_, row.results = rows_;
    Launch(context_.stream, row, pass.rows);
    auto* result = reinterpret_cast<LossResult*>(result_.backend);
    Launch(context_.stream, LossSum{rows_, pass.rows, pass.accumulate, result}, 1);
  }

  void Backward(const Pass& pass) override {
    ForEach(context_.stream, 1, SetLossScale{spec_.dlogits.scale, context_.pass});
    stats_.Round(pass, SpanOf(spec_.dlogits.tensor),
                 ScaledGradient{gradient_, before_, context_.pass});
  }

  LossResult Result() override {
    context_.shared.Fetch(result_);
    context_.stream.Synchronize();
    LossResult result;
    std::memcpy(&result, result_.host, sizeof result);
    return result;
  }

 private:
  void SendMixes(const SecondLabels& second, int rows) {
    auto* mixes = reinterpret_cast<RowMix*>(mixes_.host);
    for (int row = 0; row < rows; ++row)
      mixes[row] =
          second.labels != nullptr ? RowMix{second.labels[row], second.shares[row]} : RowMix{0, 1};
    context_.shared.Send(
        {mixes_.backend, mixes_.host, static_cast<std::size_t>(rows) * sizeof(RowMix)});
  }

  Context context_;
  LossSpec spec_;
  SharedMemory labels_, result_, mixes_;  // mixes_: RowMix [n], where rows may have two labels
  RowResult* rows_;
  float* gradient_ = nullptr;  // unscaled
  NumberGrid before_;
  RoundingStats stats_;
};

}  // namespace

std::unique_ptr<LossOp> MakeLossOp(const Context& context, const LossSpec& spec) {
  return std::make_unique<CudaLoss>(context, spec);
}

}  // namespace ada::backend::cuda
