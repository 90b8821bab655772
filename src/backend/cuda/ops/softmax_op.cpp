// Softmax of each position's channels.
#include "backend/cuda/kernels/value_makers.h"
#include "backend/cuda/op_makers.h"
#include "backend/cuda/rounding/rounding_stats.h"

namespace ada::backend::cuda {
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

}  // namespace ada::backend::cuda
