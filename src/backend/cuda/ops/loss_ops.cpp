// Losses: of images, of pixels, of default boxes. Forward a launch adds up the loss; backward the
// gradient of each output is multiplied by S and rounded once.
#include <cstring>
#include <vector>

#include "backend/cuda/context.h"
#include "backend/cuda/kernels/loss.h"
#include "backend/cuda/kernels/threads.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/memory.h"
#include "backend/cuda/rounding/rounding_stats.h"
#include "error.h"

namespace ada::backend::cuda {
namespace {

// The gradient of one output of a loss: computed value by value in fp32, multiplied by S, rounded
// once. Each loss op has one for each of its outputs and calls Round in its Backward. S is read
// from the pass's values on the device, so that a recorded step runs with any S.
class LossGradient {
 public:
  // reference: values are rounded to the gradient's format before S as well. An empty gradient is
  // left alone.
  LossGradient(const Context& context, const Gradient& gradient, bool reference)
      : context_(context), gradient_(gradient) {
    if (!gradient) return;
    stats_ = RoundingStats(context, gradient);
    if (reference) before_ = GridOf(gradient.tensor.format);
  }

  // unscaled(i): value i before S.
  template <class Unscaled>
  void Round(const Pass& pass, const Unscaled& unscaled) const {
    if (!gradient_) return;
    ForEach(context_.stream, 1, SetLossScale{gradient_.scale, context_.pass});
    stats_.Round(pass, SpanOf(gradient_.tensor),
                 ScaledGradient<Unscaled>{unscaled, before_, context_.pass});
  }

 private:
  Context context_;
  Gradient gradient_;
  NumberGrid before_;
  RoundingStats stats_;
};

// What the parts of a loss (its rows, images or blocks of threads) add up to, over the calls that
// go on with each other. Belongs to a loss op. The total stays on the device while calls
// accumulate, and the last block of each call writes it to pinned memory as well, where Result
// reads it.
class LossTotal {
 public:
  // most: parts of a call.
  LossTotal(const Context& context, std::int64_t most)
      : stream_(context.stream),
        on_host_(context.stream),
        result_(context.Allocate<LossResult>(1)),
        parts_(context.Allocate<LossResult>(most)),
        finished_(context.AllocateZeroed<std::uint32_t>(1)) {}
  // For a kernel that writes them.
  LossResult* parts() const { return parts_; }
  // Launches that kernel, of which each block writes one part; the last one adds them up.
  template <class Kernel>
  void Launch(const Pass& pass, const Kernel& kernel, std::int64_t blocks) const {
    constexpr int kThreads = Kernel::kThreads < 128 ? Kernel::kThreads : 128;
    using Sum = LossSum<kThreads>;
    const Sum sum{parts_, static_cast<int>(blocks), pass.accumulate, result_, on_host_.get()};
    // Without parts the sum is zero.
    if (blocks == 0) return cuda::Launch(stream_, sum, 1);
    LaunchInTurn(stream_, kernel, sum, finished_, static_cast<int>(blocks));
  }
  LossResult Result() const {
    stream_.Synchronize();
    return *on_host_;
  }

 private:
  Stream& stream_;
  Pinned<LossResult> on_host_;
  LossResult* result_;
  LossResult* parts_;
  std::uint32_t* finished_;
};

// --- Of images ---

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

// --- Of pixels ---

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

// --- Of default boxes ---

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
