// Local response normalization: a pixel's channels by those beside them.
#include "backend/cuda/kernels/norms.h"
#include "backend/cuda/op_makers.h"
#include "backend/cuda/rounding/rounding_stats.h"
#include "backend/decisions.h"

namespace ada::backend::cuda {
namespace {

// The op of an LrnSpec. Each value sums its own window in both ways; nothing is kept between them.
class CudaLrn final : public Op {
 public:
  CudaLrn(const Context& context, const LrnSpec& spec)
      : spec_(spec),
        y_stats_(context, spec.y, spec.y_style, spec.y_stats),
        dx_stats_(context, spec.dx) {
    dx_stats_.PassScale(spec.dy);
  }
  void Forward(const Pass& pass) override {
    y_stats_.Round(pass, SpanOf(spec_.y), LrnValue{Windows()});
  }
  void Backward(const Pass& pass) override {
    if (!spec_.dx) return;
    dx_stats_.Round(pass, SpanOf(spec_.dx.tensor), LrnGradient{Windows(), SpanOf(spec_.dy.tensor)});
  }

 private:
  // The tensor and constants that y and dx read alike.
  LrnWindows Windows() const {
    return {SpanOf(spec_.x), static_cast<int>(spec_.x.shape.c), spec_.size, FactorsOf(spec_)};
  }

  LrnSpec spec_;
  RoundingStats y_stats_, dx_stats_;
};

}  // namespace

template <>
std::unique_ptr<Op> MakeOp(const Context& c, const LrnSpec& s) {
  return std::make_unique<CudaLrn>(c, s);
}

}  // namespace ada::backend::cuda
