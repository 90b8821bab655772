// Values times a factor of their image (stochastic depth) or of their channel (channel scale,
// affine), and nearest upsampling.
#include "backend/cuda/kernels/factors.h"
#include "backend/cuda/ops/ops.h"
#include "backend/cuda/ops/parameter_gradient.h"
#include "backend/cuda/ops/rounding_stats.h"
#include "backend/decisions.h"
#include "core/error.h"

namespace ada::backend::cuda {
namespace {

class CudaStochasticDepth final : public Op {
 public:
  CudaStochasticDepth(const Context& context, const StochasticDepthSpec& spec)
      : context_(context),
        spec_(spec),
        y_stats_(context, spec.y, spec.y_style, spec.y_stats),
        dx_stats_(context, spec.dx) {
    dx_stats_.PassScale(spec.dy);
  }
  void Forward(const Pass& pass) override {
    if (!Copies(spec_, pass))
      return y_stats_.Round(pass, SpanOf(spec_.y),
                            Drop(pass, spec_.x, pass.training ? spec_.rate : 0));
    context_.stream.Copy(
        spec_.y.data, spec_.x.data,
        static_cast<std::size_t>(pass.rows * spec_.x.shape.per_image()) * BytesOf(spec_.x.storage));
  }
  void Backward(const Pass& pass) override {
    if (!spec_.dx) return;
    dx_stats_.Round(pass, SpanOf(spec_.dx.tensor), Drop(pass, spec_.dy.tensor, spec_.rate));
  }

 private:
  KeptImageValue Drop(const Pass& pass, const Tensor& in, float rate) const {
    return {SpanOf(in),    context_.pass, spec_.stream,
            rate,          spec_.batch,   static_cast<std::uint32_t>(in.shape.per_image()),
            pass.first_row};
  }

  Context context_;
  StochasticDepthSpec spec_;
  RoundingStats y_stats_, dx_stats_;
};

class CudaChannelScale final : public Op {
 public:
  CudaChannelScale(const Context& context, const ChannelScaleSpec& spec)
      : context_(context),
        spec_(spec),
        strips_{spec.x.shape.h * spec.x.shape.w},
        y_stats_(context, spec.y, spec.y_style, spec.y_stats),
        dx_stats_(context, spec.dx) {
    dx_stats_.PassScale(spec.dy);
    if (spec.dw) sums_ = context.Allocate<float>(spec.x.shape.n * strips_.per_image() * Channels());
  }
  void Forward(const Pass& pass) override { y_stats_.Round(pass, SpanOf(spec_.y), Times(spec_.x)); }
  void Backward(const Pass& pass) override {
    SumByChannel(context_.stream, pass, strips_, Channels(),
                 ProductTerm{SpanOf(spec_.dy.tensor), SpanOf(spec_.x)}, sums_, spec_.dy.scale,
                 spec_.dw);
    if (spec_.dx) dx_stats_.Round(pass, SpanOf(spec_.dx.tensor), Times(spec_.dy.tensor));
  }

 private:
  std::int64_t Channels() const { return spec_.x.shape.c; }
  ChannelProduct Times(const Tensor& in) const {
    return {SpanOf(in), spec_.w.f32(), static_cast<std::uint32_t>(Channels())};
  }

  Context context_;
  ChannelScaleSpec spec_;
  Strips strips_;
  RoundingStats y_stats_, dx_stats_;
  float* sums_ = nullptr;
};

class CudaAffine final : public Op {
 public:
  CudaAffine(const Context& context, const AffineSpec& spec)
      : spec_(spec),
        y_stats_(context, spec.y, spec.y_style, spec.y_stats),
        dx_stats_(context, spec.dx) {
    dx_stats_.PassScale(spec.dy);
  }
  void Forward(const Pass& pass) override {
    y_stats_.Round(pass, SpanOf(spec_.y), Of(spec_.x, spec_.offset.f32()));
  }
  void Backward(const Pass& pass) override {
    if (!spec_.dx) return;
    dx_stats_.Round(pass, SpanOf(spec_.dx.tensor), Of(spec_.dy.tensor, nullptr));
  }

 private:
  AffineValue Of(const Tensor& in, const float* offset) const {
    return {SpanOf(in), spec_.factor.f32(), offset, static_cast<std::uint32_t>(in.shape.c)};
  }

  AffineSpec spec_;
  RoundingStats y_stats_, dx_stats_;
};

class CudaUpsample final : public Op {
 public:
  CudaUpsample(const Context& context, const UpsampleSpec& spec)
      : spec_(spec), y_stats_(context, spec.y, {}, nullptr), dx_stats_(context, spec.dx) {
    ADA_CHECK(spec.x.format == spec.y.format && spec.x.storage == spec.y.storage);
    dx_stats_.PassScale(spec.dy);
  }
  void Forward(const Pass& pass) override {
    y_stats_.Move(pass, SpanOf(spec_.y),
                  RepeatedValue{SpanOf(spec_.x), ImageOf(spec_.x.shape), ImageOf(spec_.y.shape),
                                spec_.scale});
  }
  void Backward(const Pass& pass) override {
    if (!spec_.dx) return;
    dx_stats_.Round(pass, SpanOf(spec_.dx.tensor),
                    RepeatedGradient{SpanOf(spec_.dy.tensor), ImageOf(spec_.x.shape),
                                     ImageOf(spec_.y.shape), spec_.scale});
  }

 private:
  UpsampleSpec spec_;
  RoundingStats y_stats_, dx_stats_;
};

}  // namespace

template <>
std::unique_ptr<Op> MakeOp(const Context& c, const StochasticDepthSpec& s) {
  return std::make_unique<CudaStochasticDepth>(c, s);
}
template <>
std::unique_ptr<Op> MakeOp(const Context& c, const ChannelScaleSpec& s) {
  return std::make_unique<CudaChannelScale>(c, s);
}
template <>
std::unique_ptr<Op> MakeOp(const Context& c, const UpsampleSpec& s) {
  return std::make_unique<CudaUpsample>(c, s);
}
template <>
std::unique_ptr<Op> MakeOp(const Context& c, const AffineSpec& s) {
  return std::make_unique<CudaAffine>(c, s);
}

}  // namespace ada::backend::cuda
