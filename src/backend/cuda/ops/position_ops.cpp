// Layers of each position: rope and softmax.
#include <cmath>
#include <vector>

#include "backend/cuda/kernels/positions.h"
#include "backend/cuda/ops/ops.h"
#include "backend/cuda/ops/rounding_stats.h"

namespace ada::backend::cuda {
namespace {

class CudaRope final : public Op {
 public:
  CudaRope(const Context& context, const RopeSpec& spec)
      : spec_(spec),
        y_stats_(context, spec.y, spec.y_style, spec.y_stats),
        dx_stats_(context, spec.dx) {
    dx_stats_.PassScale(spec.dy);
    std::vector<float> cos, sin;
    for (std::int64_t t = 0; t < Positions(); ++t)
      for (int i = 0; i < spec.rotary / 2; ++i) {
        const double angle = static_cast<double>(t) * std::pow(spec.base, -2.0 * i / spec.rotary);
        cos.push_back(static_cast<float>(std::cos(angle)));
        sin.push_back(static_cast<float>(std::sin(angle)));
      }
    cos_ = context.Keep(cos), sin_ = context.Keep(sin);
  }
  void Forward(const Pass& pass) override {
    y_stats_.Round(pass, SpanOf(spec_.y), Turned(spec_.x, 1));
  }
  void Backward(const Pass& pass) override {
    if (spec_.dx) dx_stats_.Round(pass, SpanOf(spec_.dx.tensor), Turned(spec_.dy.tensor, -1));
  }

 private:
  std::int64_t Positions() const { return spec_.y.shape.h * spec_.y.shape.w; }
  TurnedValue Turned(const Tensor& in, float sign) const {
    const std::int64_t channels = spec_.y.shape.c;
    return {SpanOf(in),
            cos_,
            sin_,
            sign,
            static_cast<std::uint32_t>(channels),
            static_cast<std::uint32_t>(Positions()),
            static_cast<std::uint32_t>(channels / spec_.heads),
            static_cast<std::uint32_t>(spec_.rotary / 2),
            spec_.interleaved};
  }

  RopeSpec spec_;
  RoundingStats y_stats_, dx_stats_;
  const float *cos_ = nullptr, *sin_ = nullptr;
};

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
    ForEach(stream_, Positions(pass.rows), SumSlopes{Probability(), dy, slopes_});
    dx_stats_.Round(pass, SpanOf(spec_.dx.tensor), SoftmaxSlope{Probability(), dy, slopes_});
  }

 private:
  std::int64_t Positions(int images) const { return images * spec_.y.shape.h * spec_.y.shape.w; }
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
std::unique_ptr<Op> MakeOp(const Context& c, const RopeSpec& s) {
  return std::make_unique<CudaRope>(c, s);
}
template <>
std::unique_ptr<Op> MakeOp(const Context& c, const SoftmaxSpec& s) {
  return std::make_unique<CudaSoftmax>(c, s);
}

}  // namespace ada::backend::cuda
