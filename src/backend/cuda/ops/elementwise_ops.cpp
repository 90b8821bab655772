// Input, relu and add.
#include <memory>
#include <vector>

#include "backend/cuda/kernels/value_makers.h"
#include "backend/cuda/op_makers.h"
#include "backend/cuda/ops/image_feed.h"
#include "backend/cuda/rounding/rounding_stats.h"
#include "backend/cuda/staging.h"
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
      : spec_(spec), stats_(context, spec.y, spec.y_style, spec.y_stats) {
    std::vector<TensorSpan> spans;
    for (const Tensor& x : spec.x) spans.push_back(SpanOf(x));
    const auto count = static_cast<int>(spans.size());
    value_ = {spans[0], spans[count > 1 ? 1 : 0], context.Keep(spans), count};
  }
  void Forward(const Pass& pass) override { stats_.Round(pass, SpanOf(spec_.y), value_); }
  void Backward(const Pass&) override {}  // an alias of the graph

 private:
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

}  // namespace ada::backend::cuda
