// The loss of default boxes: Huber's of the positive ones' locations, softmax cross-entropy of
// these and of hard negatives, which are chosen on the device.
#include <cstring>

#include "backend/cuda/kernels/row_losses.h"
#include "backend/cuda/op_makers.h"
#include "backend/cuda/ops/loss_gradient.h"
#include "backend/cuda/ops/loss_total.h"
#include "error.h"

namespace ada::backend::cuda {
namespace {

// The op of a MultiboxLossSpec: SetTargets, then Forward, then Backward for the same rows. One
// launch finds the cross-entropies of all boxes; in a second one a block of threads for each image
// chooses its hard negatives and adds up its loss.
class CudaMultiboxLoss final : public LossOp {
 public:
  CudaMultiboxLoss(const Context& context, const MultiboxLossSpec& spec)
      : context_(context),
        spec_(spec),
        boxes_(spec.scores.shape.h * spec.scores.shape.w),
        labels_(context.shared.Allocate(Bytes<std::int32_t>(spec.scores.shape.n))),
        targets_(context.shared.Allocate(4 * Bytes<float>(spec.scores.shape.n))),
        total_(context, spec.scores.shape.n),
        location_out_(context, spec.dlocations, spec.reference),
        score_out_(context, spec.dscores, spec.reference) {
    const Shape& locations = spec.locations.shape;
    ADA_CHECK(locations.n == spec.scores.shape.n && locations.c == 4 &&
              locations.h * locations.w == boxes_);
    const std::int64_t all = locations.n * boxes_;
    // Kept from Forward to Backward: by log_sums_ probabilities are computed anew.
    log_sums_ = context.Allocate<double>(all), entropies_ = context.Allocate<double>(all);
    better_ = context.Allocate<std::int32_t>(all), used_ = context.Allocate<std::int32_t>(all);
  }

  void SetTargets(const Targets& targets, int rows) override {
    ADA_CHECK(targets.locations != nullptr && rows <= spec_.scores.shape.n);
    for (std::int64_t i = 0; i < rows * boxes_; ++i)
      ADA_CHECK(targets.labels[i] < spec_.scores.shape.c);
    Send(labels_, targets.labels, Bytes<std::int32_t>(rows));
    Send(targets_, targets.locations, 4 * Bytes<float>(rows));
  }

  void Forward(const Pass& pass) override {
    ForEach(context_.stream, pass.rows * boxes_,
            BoxEntropies{Rows(), Labels(), log_sums_, entropies_, better_});
    MultiboxImage image{};
    image.boxes = boxes_, image.negatives = spec_.negatives;
    image.reads_background = spec_.reads_background;
    image.labels = Labels(), image.better = better_, image.entropies = entropies_;
    image.locations = SpanOf(spec_.locations), image.targets = LocationTargets();
    image.used = used_, image.parts = total_.parts();
    total_.Launch(pass, image, pass.rows);
  }

  void Backward(const Pass& pass) override {
    location_out_.Round(pass, LocationGradient{SpanOf(spec_.locations), Labels(), LocationTargets(),
                                               context_.pass});
    // used_ has the labels, negative for boxes that were not chosen, whose gradient is 0.
    score_out_.Round(pass, RowGradient{Rows(), used_, nullptr, log_sums_, context_.pass});
  }

  LossResult Result() override { return total_.Result(); }

 private:
  // Bytes of one T for each box of this many images.
  template <class T>
  std::size_t Bytes(std::int64_t images) const {
    return static_cast<std::size_t>(images * boxes_) * sizeof(T);
  }
  void Send(const SharedMemory& to, const void* from, std::size_t bytes) {
    std::memcpy(to.host, from, bytes);
    context_.shared.Send({to.backend, to.host, bytes});
  }
  ScoreRows Rows() const { return {SpanOf(spec_.scores), spec_.scores.shape.c}; }
  const std::int32_t* Labels() const {
    return reinterpret_cast<const std::int32_t*>(labels_.backend);
  }
  const float* LocationTargets() const { return reinterpret_cast<const float*>(targets_.backend); }

  Context context_;
  MultiboxLossSpec spec_;
  std::int64_t boxes_;  // of an image
  SharedMemory labels_, targets_;
  LossTotal total_;
  LossGradient location_out_, score_out_;
  double *log_sums_, *entropies_;  // by box
  std::int32_t *better_, *used_;
};

}  // namespace

std::unique_ptr<LossOp> MakeLossOp(const Context& context, const MultiboxLossSpec& spec) {
  return std::make_unique<CudaMultiboxLoss>(context, spec);
}

}  // namespace ada::backend::cuda
