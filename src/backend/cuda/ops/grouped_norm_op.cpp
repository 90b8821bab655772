// Norms of a pixel's channels (layer norm) or of a group of an image's channels (group norm).
#include "backend/cuda/kernels/norms.h"
#include "backend/cuda/op_makers.h"
#include "backend/cuda/ops/parameter_gradient.h"
#include "backend/cuda/rounding/rounding_stats.h"

namespace ada::backend::cuda {
namespace {

// The op of a layer norm or a group norm; norms without a mean are uncentered_norm_op's. A first
// launch finds each group's mean and inverse deviation, which Backward reads again, a second one
// makes the values.
class CudaGroupedNorm final : public Op {
 public:
  // groups: of an image's channels; 0: each pixel is a group.
  CudaGroupedNorm(const Context& context, const GroupedNormSpec& spec, int groups)
      : context_(context),
        spec_(spec),
        strips_{spec.x.shape.h * spec.x.shape.w},
        y_stats_(context, spec.y, spec.y_style, spec.y_stats),
        dx_stats_(context, spec.dx) {
    const Shape& shape = spec.x.shape;
    geometry_.channels = shape.c, geometry_.per_image = shape.per_image();
    geometry_.by_pixel = groups == 0;
    geometry_.groups = groups == 0 ? strips_.pixels : groups;
    geometry_.runs = groups == 0 ? 1 : strips_.pixels;
    geometry_.run = groups == 0 ? shape.c : shape.c / groups;
    const std::int64_t count = shape.n * geometry_.groups;
    beta_ = spec.beta ? spec.beta.f32() : context.AllocateZeroed<float>(shape.c);
    mean_ = context.Allocate<float>(count), inverse_ = context.Allocate<float>(count);
    if (!spec.dgamma) return;
    dx_stats_.PassScale(spec.dy);
    mean_g_ = context.Allocate<float>(count), mean_ghat_ = context.Allocate<float>(count);
    sums_ = context.Allocate<float>(shape.n * strips_.per_image() * shape.c);
  }
  void Forward(const Pass& pass) override {
    const std::int64_t groups = pass.rows * geometry_.groups;
    Launch(context_.stream,
           GroupStatistics{geometry_, groups, SpanOf(spec_.x), static_cast<double>(spec_.eps),
                           mean_, inverse_},
           GroupThreads::Blocks(groups));
    y_stats_.Round(
        pass, SpanOf(spec_.y),
        GroupedNormValue{geometry_, SpanOf(spec_.x), mean_, inverse_, spec_.gamma.f32(), beta_});
  }
  void Backward(const Pass& pass) override {
    const TensorSpan x = SpanOf(spec_.x), dy = SpanOf(spec_.dy.tensor);
    Total(pass, HatTerm{geometry_, x, dy, mean_, inverse_}, spec_.dgamma);
    if (spec_.dbeta) Total(pass, PlainTerm{dy}, spec_.dbeta);
    if (!spec_.dx) return;
    const std::int64_t groups = pass.rows * geometry_.groups;
    const float* gamma = spec_.gamma.f32();
    // dx subtracts the means over a group of dy * gamma and of that times xhat.
    Launch(
        context_.stream,
        GroupGradientMeans{geometry_, groups, x, dy, mean_, inverse_, gamma, mean_g_, mean_ghat_},
        GroupThreads::Blocks(groups));
    dx_stats_.Round(
        pass, SpanOf(spec_.dx.tensor),
        GroupedNormGradient{geometry_, x, dy, mean_, inverse_, gamma, mean_g_, mean_ghat_});
  }

 private:
  // dgamma or dbeta: sums over pixels, by strips.
  template <class Term>
  void Total(const Pass& pass, const Term& term, const Tensor& to) const {
    SumByChannel(context_.stream, pass, strips_, geometry_.channels, term, sums_, spec_.dy.scale,
                 to);
  }

  Context context_;
  GroupedNormSpec spec_;
  Strips strips_;
  NormGroups geometry_;
  RoundingStats y_stats_, dx_stats_;
  const float* beta_ = nullptr;                     // zeros where the norm has none
  float *mean_ = nullptr, *inverse_ = nullptr;      // by group of the batch
  float *mean_g_ = nullptr, *mean_ghat_ = nullptr;  // the same
  float* sums_ = nullptr;
};

}  // namespace

template <>
std::unique_ptr<Op> MakeOp(const Context& c, const LayerNormSpec& s) {
  return std::make_unique<CudaGroupedNorm>(c, s, 0);
}
template <>
std::unique_ptr<Op> MakeOp(const Context& c, const GroupNormSpec& s) {
  return std::make_unique<CudaGroupedNorm>(c, s, s.groups);
}

}  // namespace ada::backend::cuda
