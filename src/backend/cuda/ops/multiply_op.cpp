// The product of two tensors, one of which may have one value a channel for all pixels of an image.
#include "backend/cuda/kernels/strip_sums.h"
#include "backend/cuda/kernels/value_makers.h"
#include "backend/cuda/op_makers.h"
#include "backend/cuda/rounding/rounding_stats.h"

namespace ada::backend::cuda {
namespace {

// The op of a MultiplySpec. An input of one value a channel, the gate, is spread over the pixels of
// its image; where both inputs have one shape there is none. The gate's gradient is a sum over
// strips.
class CudaMultiply final : public Op {
 public:
  CudaMultiply(const Context& context, const MultiplySpec& spec)
      : context_(context),
        spec_(spec),
        gate_(spec.x[0].shape == spec.x[1].shape ? -1
              : spec.x[0].shape == spec.y.shape  ? 1
                                                 : 0),
        strips_{spec.y.shape.h * spec.y.shape.w},
        y_stats_(context, spec.y, spec.y_style, spec.y_stats) {
    spec_.dx.resize(2);
    for (std::size_t k = 0; k < 2; ++k) {
      dx_stats_[k] = RoundingStats(context, spec_.dx[k]);
      dx_stats_[k].PassScale(spec.dy);
    }
    if (gate_ < 0 || !spec_.dx[static_cast<std::size_t>(gate_)]) return;
    sums_ = context.Allocate<float>(spec.y.shape.n * strips_.per_image() * spec.y.shape.c);
  }
  void Forward(const Pass& pass) override {
    // Where both shapes are equal the second input takes the gate's part.
    const std::size_t second = gate_ == 0 ? 0 : 1;
    y_stats_.Round(pass, SpanOf(spec_.y), Product(spec_.x[1 - second], second));
  }
  void Backward(const Pass& pass) override {
    for (std::size_t k = 0; k < 2; ++k) {
      if (!spec_.dx[k]) continue;
      const TensorSpan dx = SpanOf(spec_.dx[k].tensor);
      if (static_cast<int>(k) != gate_) {
        dx_stats_[k].Round(pass, dx, Product(spec_.dy.tensor, 1 - k));
        continue;
      }
      const std::int64_t channels = spec_.y.shape.c;
      const StripSums<ProductTerm> sums = {
          strips_, channels, sums_, {SpanOf(spec_.dy.tensor), SpanOf(spec_.x[1 - k])}};
      ForEach(context_.stream, sums.Count(pass.rows), sums);
      dx_stats_[k].Round(pass, dx, ImageSum{sums_, strips_.per_image(), channels});
    }
  }

 private:
  // a * input `other`; a has the shape of y.
  ProductValue Product(const Tensor& a, std::size_t other) const {
    const Shape& shape = spec_.y.shape;
    return {SpanOf(a), SpanOf(spec_.x[other]), static_cast<int>(other) == gate_,
            static_cast<std::uint32_t>(shape.per_image()), static_cast<std::uint32_t>(shape.c)};
  }

  Context context_;
  MultiplySpec spec_;
  int gate_;  // the input of one value a channel; -1: none
  Strips strips_;
  RoundingStats y_stats_, dx_stats_[2];
  float* sums_ = nullptr;
};

}  // namespace

template <>
std::unique_ptr<Op> MakeOp(const Context& c, const MultiplySpec& s) {
  return std::make_unique<CudaMultiply>(c, s);
}

}  // namespace ada::backend::cuda
