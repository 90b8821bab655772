// Values times a trained slope of their channel, or of all, where they are not positive.
#include "backend/cuda/kernels/factors.h"
#include "backend/cuda/kernels/strip_sums.h"
#include "backend/cuda/ops/ops.h"
#include "backend/cuda/ops/rounding_stats.h"

namespace ada::backend::cuda {
namespace {

class CudaPrelu final : public Op {
 public:
  CudaPrelu(const Context& context, const PreluSpec& spec)
      : context_(context),
        spec_(spec),
        strips_{spec.x.shape.h * spec.x.shape.w},
        y_stats_(context, spec.y, spec.y_style, spec.y_stats),
        dx_stats_(context, spec.dx) {
    dx_stats_.PassScale(spec.dy);
    if (spec.dw) sums_ = context.Allocate<float>(spec.x.shape.n * strips_.per_image() * Channels());
  }
  void Forward(const Pass& pass) override {
    y_stats_.Round(pass, SpanOf(spec_.y), Sloped(spec_.x));
  }
  void Backward(const Pass& pass) override {
    if (spec_.dw) SumSlopes(pass);
    if (spec_.dx) dx_stats_.Round(pass, SpanOf(spec_.dx.tensor), Sloped(spec_.dy.tensor));
  }

 private:
  std::int64_t Channels() const { return spec_.x.shape.c; }
  SlopedValue Sloped(const Tensor& values) const {
    return {SpanOf(values), SpanOf(spec_.x), spec_.w.f32(),
            static_cast<std::uint32_t>(spec_.w.shape.c)};
  }
  void SumSlopes(const Pass& pass) {
    const StripSums<BelowTerm> sums = {
        strips_, Channels(), sums_, {SpanOf(spec_.dy.tensor), SpanOf(spec_.x)}};
    ForEach(context_.stream, sums.Count(pass.rows), sums);
    const std::int64_t strips = pass.rows * strips_.per_image();
    if (spec_.w.shape.c > 1)
      ForEach(
          context_.stream, Channels(),
          ParameterSum{sums_, strips, Channels(), spec_.dy.scale, spec_.dw.f32(), pass.accumulate});
    else
      ForEach(context_.stream, 1,
              WholeParameterSum{sums_, strips, Channels(), spec_.dy.scale, spec_.dw.f32(),
                                pass.accumulate});
  }

  Context context_;
  PreluSpec spec_;
  Strips strips_;
  RoundingStats y_stats_, dx_stats_;
  float* sums_ = nullptr;
};

}  // namespace

template <>
std::unique_ptr<Op> MakeOp(const Context& c, const PreluSpec& s) {
  return std::make_unique<CudaPrelu>(c, s);
}

}  // namespace ada::backend::cuda
