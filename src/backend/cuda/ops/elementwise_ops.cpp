// Ops whose output values each depend on few values of the inputs: functions and sums, softmax,
// casts, concatenations.
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "backend/cuda/context.h"
#include "backend/cuda/kernels/values.h"
#include "backend/cuda/memory.h"
#include "backend/cuda/ops/image_feed.h"
#include "backend/cuda/rounding/alpha_rule.h"
#include "backend/cuda/rounding/rounding_stats.h"
#include "backend/cuda/rounding/row_chain.h"
#include "backend/values/moves.h"
#include "error.h"

namespace ada::backend::cuda {

namespace {

// Images arrive in fp32 in backend memory, from SetImages, from the byte feed or from what an
// ImageSource filled, and are rounded by Forward. Where the spec has no x the op has its own.
class CudaInput final : public InputOp {
 public:
  CudaInput(const Context& context, const InputSpec& spec)
      : context_(context),
        spec_(spec),
        stats_(context, spec.y, spec.y_style, spec.y_stats),
        staging_(std::make_unique<Staging>(context.stream, 2)) {
    ADA_CHECK(spec.x.storage == Storage::kF32 && spec.x.format == kFp32);
    if (!spec.x) spec_.x.data = context.Allocate<std::byte>(spec.y.shape.numel() * 4);
    // Bytes and fp32 images come to the same memory: a batch comes by one way or the other.
    feed_ = std::make_unique<ImageFeed>(context, spec.y.shape, spec_.x.f32());
  }
  ByteFeed* byte_feed() override { return feed_.get(); }
  void SetImages(const float* images, int rows) override {
    const auto values = static_cast<std::size_t>(rows * spec_.y.shape.per_image());
    staging_->Send(spec_.x.data, images, values * sizeof(float));
  }
  void Forward(const Pass& pass) override {
    stats_.Round(pass, SpanOf(spec_.y), SameValue{SpanOf(spec_.x)});
  }
  void Backward(const Pass&) override {}

 private:
  Context context_;
  InputSpec spec_;
  RoundingStats stats_;
  std::unique_ptr<Staging> staging_;  // a batch is written while the one before it is copied
  std::unique_ptr<ImageFeed> feed_;
};

// A relu that is not fused into the norm before it: forward it moves values; dx is dy where y is
// positive and else 0.
class CudaRelu final : public Op {
 public:
  CudaRelu(const Context& context, const ReluSpec& spec)
      : spec_(spec), y_stats_(context, spec.y, {}, nullptr), dx_stats_(context, spec.dx) {
    ADA_CHECK(spec.x.format == spec.y.format);
    dx_stats_.PassScale(spec.dy);
  }
  void Forward(const Pass& pass) override {
    y_stats_.Move(pass, SpanOf(spec_.y), ReluValue{SpanOf(spec_.x)});
  }
  void Backward(const Pass& pass) override {
    if (!spec_.dx) return;
    dx_stats_.Round(pass, SpanOf(spec_.dx.tensor),
                    MaskedValue{SpanOf(spec_.dy.tensor), SpanOf(spec_.y)});
  }

 private:
  ReluSpec spec_;
  RoundingStats y_stats_, dx_stats_;
};

// The sum of the outputs of several layers, with one rounding; two inputs are read without a look
// at the list.
class CudaAdd final : public Op {
 public:
  CudaAdd(const Context& context, const AddSpec& spec)
      : chain_(context.row_chain),
        spec_(spec),
        stats_(context, spec.y, spec.y_style, spec.y_stats) {
    std::vector<TensorSpan> spans;
    for (const Tensor& x : spec.x) spans.push_back(SpanOf(x));
    const auto count = static_cast<int>(spans.size());
    value_ = {spans[0], spans[count > 1 ? 1 : 0], context.Keep(spans), count};
  }
  void Forward(const Pass& pass) override {
    if (!chain_.Leave(pass, stats_, spec_.x, spec_.y, value_))
      stats_.Round(pass, SpanOf(spec_.y), value_);
  }
  void Backward(const Pass&) override {}  // an alias of the graph

 private:
  RowChain& chain_;
  AddSpec spec_;
  RoundingStats stats_;
  SumValue value_{};
};

}  // namespace

std::unique_ptr<InputOp> MakeInputOp(const Context& c, const InputSpec& s) {
  return std::make_unique<CudaInput>(c, s);
}
template <>
std::unique_ptr<Op> MakeOp(const Context& c, const ReluSpec& s) {
  return std::make_unique<CudaRelu>(c, s);
}
template <>
std::unique_ptr<Op> MakeOp(const Context& c, const AddSpec& s) {
  return std::make_unique<CudaAdd>(c, s);
}

// --- Softmax of each position's channels ---

namespace {

// The op of a SoftmaxSpec. The highest value and the sum of each position are found once in Forward
// and read again by Backward, whose probabilities are not rounded.
class CudaSoftmax final : public Op {
 public:
  CudaSoftmax(const Context& context, const SoftmaxSpec& spec)
      : stream_(context.stream),
        spec_(spec),
        y_stats_(context, spec.y, spec.y_style, spec.y_stats),
        dx_stats_(context, spec.dx),
        sums_(context.Allocate<PositionSum>(Positions(static_cast<int>(spec.y.shape.n)))) {
    dx_stats_.PassScale(spec.dy);
    if (spec.dx) slopes_ = context.Allocate<double>(Positions(static_cast<int>(spec.y.shape.n)));
  }
  void Forward(const Pass& pass) override {
    ForEach(stream_, Positions(pass.rows), SumPositions{SpanOf(spec_.x), spec_.y.shape.c, sums_});
    y_stats_.Round(pass, SpanOf(spec_.y), Probability());
  }
  void Backward(const Pass& pass) override {
    if (!spec_.dx) return;
    const TensorSpan dy = SpanOf(spec_.dy.tensor);
    // The sum of p dy over the channels of each position is taken in double.
    ForEach(stream_, Positions(pass.rows), SumSlopes{Probability(), dy, slopes_});
    dx_stats_.Round(pass, SpanOf(spec_.dx.tensor), SoftmaxSlope{Probability(), dy, slopes_});
  }

 private:
  std::int64_t Positions(int images) const { return images * spec_.y.shape.h * spec_.y.shape.w; }
  // p of one value, in fp32 and not rounded to y's format.
  SoftmaxValue Probability() const {
    return {SpanOf(spec_.x), sums_, static_cast<std::uint32_t>(spec_.y.shape.c)};
  }

  Stream& stream_;
  SoftmaxSpec spec_;
  RoundingStats y_stats_, dx_stats_;
  PositionSum* sums_;         // by position of the batch
  double* slopes_ = nullptr;  // the same
};

}  // namespace

template <>
std::unique_ptr<Op> MakeOp(const Context& c, const SoftmaxSpec& s) {
  return std::make_unique<CudaSoftmax>(c, s);
}

// --- Casts ---

namespace {

// The op of a ScaleSpec, the cast of the paper. It has no weight, so that its rule looks at dy
// only.
class CudaScale final : public Op {
 public:
  CudaScale(const Context& context, const ScaleSpec& spec)
      : spec_(spec),
        y_stats_(context, spec.y, spec.y_style, spec.y_stats),
        dx_stats_(context, spec.dx) {
    if (!spec.dx) return;
    rule_.emplace(context, spec.scaler, spec.dy, spec.dx);
    if (context.Host(spec.scaler)->rule.reference) steps_ = GridOf(spec.dy.tensor.format);
  }
  void Forward(const Pass& pass) override {
    y_stats_.Round(pass, SpanOf(spec_.y), SameValue{SpanOf(spec_.x)});
  }
  void Backward(const Pass& pass) override {
    if (!rule_) return;
    const TensorSpan dy = SpanOf(spec_.dy.tensor);
    rule_->Decide(pass);
    // The rule looks at dy itself, which is what alpha multiplies.
    rule_->Observe(SameValue{dy}, pass.rows * spec_.dy.tensor.shape.per_image());
    dx_stats_.Round(pass, SpanOf(spec_.dx.tensor), ScaledValue{dy, rule_->alpha(), steps_});
  }

 private:
  ScaleSpec spec_;
  RoundingStats y_stats_, dx_stats_;
  NumberGrid steps_;
  std::optional<AlphaRule> rule_;
};

}  // namespace

template <>
std::unique_ptr<Op> MakeOp(const Context& c, const ScaleSpec& s) {
  return std::make_unique<CudaScale>(c, s);
}

// --- Concatenations, of channels and of boxes ---

namespace {

// The number of values in each of `parts` parts of an image.
int RunOf(const Tensor& tensor, std::int64_t parts) {
  const std::int64_t run = tensor.shape.per_image() / parts;
  ADA_CHECK(run <= std::numeric_limits<std::int32_t>::max());
  return static_cast<int>(run);
}

// An image is `times` a run of each input: by pixel its channels, or once all it has.
class CudaConcat final : public Op {
 public:
  CudaConcat(const Context& context, const ConcatSpec& spec, std::int64_t times)
      : spec_(spec), times_(times), y_stats_(context, spec.y, spec.y_style, spec.y_stats) {
    std::vector<TensorSpan> spans;
    for (const Tensor& x : spec.x) spans.push_back(SpanOf(x)), parts_.push_back(RunOf(x, times));
    joined_ = {context.Keep(spans), context.Keep(parts_), RunOf(spec.y, times)};
    for (const Gradient& dx : spec.dx) {
      // Slices of dy are moved as they are stored, with dy's scale.
      ADA_CHECK(!dx || dx.tensor.storage == spec.dy.tensor.storage);
      dx_stats_.emplace_back(context, dx).PassScale(spec.dy);
    }
  }
  // One launch reads all inputs; each value of the output finds which input it comes from.
  void Forward(const Pass& pass) override { y_stats_.Round(pass, SpanOf(spec_.y), joined_); }
  void Backward(const Pass& pass) override {
    std::int64_t first = 0;
    for (std::size_t k = 0; k < spec_.dx.size(); ++k) {
      const Gradient& dx = spec_.dx[k];
      if (dx) {
        const PartOfRuns part = PartOf(spec_.y.shape, dx.tensor.shape, times_, first);
        dx_stats_[k].Move(pass, SpanOf(dx.tensor), Moved(part, spec_.dy.tensor));
      }
      first += parts_[k];
    }
  }

 private:
  ConcatSpec spec_;
  std::int64_t times_;
  RoundingStats y_stats_;
  std::vector<RoundingStats> dx_stats_;  // by input
  std::vector<int> parts_;               // runs by input
  JoinedValue joined_{};
};

}  // namespace

template <>
std::unique_ptr<Op> MakeOp(const Context& c, const ConcatSpec& s) {
  return std::make_unique<CudaConcat>(c, s, s.y.shape.h * s.y.shape.w);
}
template <>
std::unique_ptr<Op> MakeOp(const Context& c, const ConcatBoxesSpec& s) {
  return std::make_unique<CudaConcat>(c, s, 1);
}

}  // namespace ada::backend::cuda
