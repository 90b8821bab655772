// Bilinear upsampling and pixel shuffle: each value by itself.
#include "backend/cuda/kernels/interpolate.h"
#include "backend/cuda/ops/ops.h"
#include "backend/cuda/ops/rounding_stats.h"
#include "backend/decisions.h"
#include "core/error.h"

namespace ada::backend::cuda {
namespace {

class CudaBilinear final : public Op {
 public:
  CudaBilinear(const Context& context, const BilinearSpec& spec)
      : spec_(spec),
        y_stats_(context, spec.y, spec.y_style, spec.y_stats),
        dx_stats_(context, spec.dx) {
    const Shape &x = spec.x.shape, &y = spec.y.shape;
    grid_ = {
        ImageOf(x), ImageOf(y), {x.h, y.h, spec.align_corners}, {x.w, y.w, spec.align_corners}};
    dx_stats_.PassScale(spec.dy);
  }
  void Forward(const Pass& pass) override {
    y_stats_.Round(pass, SpanOf(spec_.y), BilinearValue{SpanOf(spec_.x), grid_});
  }
  void Backward(const Pass& pass) override {
    if (!spec_.dx) return;
    dx_stats_.Round(pass, SpanOf(spec_.dx.tensor),
                    BilinearGradient{SpanOf(spec_.dy.tensor), grid_});
  }

 private:
  BilinearSpec spec_;
  BilinearGrid grid_{};
  RoundingStats y_stats_, dx_stats_;
};

class CudaPixelShuffle final : public Op {
 public:
  CudaPixelShuffle(const Context& context, const PixelShuffleSpec& spec)
      : spec_(spec), y_stats_(context, spec.y, {}, nullptr), dx_stats_(context, spec.dx) {
    ADA_CHECK(MovesBytes(spec));
    dx_stats_.PassScale(spec.dy);
  }
  void Forward(const Pass& pass) override {
    y_stats_.Move(pass, SpanOf(spec_.y), Of<false>(spec_.x));
  }
  void Backward(const Pass& pass) override {
    if (!spec_.dx) return;
    dx_stats_.Move(pass, SpanOf(spec_.dx.tensor), Of<true>(spec_.dy.tensor));
  }

 private:
  template <bool kBack>
  ShuffledValue<kBack> Of(const Tensor& from) const {
    return {SpanOf(from), ImageOf(spec_.x.shape), ImageOf(spec_.y.shape), spec_.scale};
  }

  PixelShuffleSpec spec_;
  RoundingStats y_stats_, dx_stats_;
};

}  // namespace

template <>
std::unique_ptr<Op> MakeOp(const Context& c, const BilinearSpec& s) {
  return std::make_unique<CudaBilinear>(c, s);
}
template <>
std::unique_ptr<Op> MakeOp(const Context& c, const PixelShuffleSpec& s) {
  return std::make_unique<CudaPixelShuffle>(c, s);
}

}  // namespace ada::backend::cuda
