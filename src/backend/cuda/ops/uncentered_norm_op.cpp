// A pixel's channels over their Euclidean norm (L2 normalization) or over the root of the mean of
// their squares (RMS norm), times factors by channel: norms of groups (grouped_norm_op) whose means
// are zero.
#include "backend/cuda/kernels/norms.h"
#include "backend/cuda/op_makers.h"
#include "backend/cuda/ops/parameter_gradient.h"
#include "backend/cuda/rounding/rounding_stats.h"

namespace ada::backend::cuda {
namespace {

// Sizes, Along: of kernels/norms.h. Forward finds one over the size of each group (its
// length or root mean square), which Backward reads again with x.
template <class Sizes, class Along>
class CudaUncenteredNorm final : public Op {
 public:
  CudaUncenteredNorm(const Context& context, const GroupedNormSpec& spec)
      : context_(context),
        spec_(spec),
        strips_{spec.x.shape.h * spec.x.shape.w},
        y_stats_(context, spec.y, spec.y_style, spec.y_stats),
        dx_stats_(context, spec.dx) {
    const Shape& shape = spec.x.shape;
    geometry_.channels = geometry_.run = shape.c, geometry_.per_image = shape.per_image();
    geometry_.groups = strips_.pixels;
    const std::int64_t groups = shape.n * geometry_.groups;
    // Kernels of centered norms read a mean for each group.
    zeros_ = context.AllocateZeroed<float>(groups);
    size_ = context.Allocate<float>(groups), inverse_ = context.Allocate<float>(groups);
    if (!spec.dgamma) return;
    dx_stats_.PassScale(spec.dy);
    along_ = context.Allocate<float>(groups);
    sums_ = context.Allocate<float>(shape.n * strips_.per_image() * shape.c);
  }
  void Forward(const Pass& pass) override {
    const std::int64_t groups = pass.rows * geometry_.groups;
    Launch(context_.stream,
           GroupSums<Sizes>{
               geometry_,
               groups,
               {SpanOf(spec_.x), static_cast<double>(spec_.eps), Count(), size_, inverse_}},
           GroupThreads::Blocks(groups));
    y_stats_.Round(
        pass, SpanOf(spec_.y),
        GroupedNormValue{geometry_, SpanOf(spec_.x), zeros_, inverse_, spec_.gamma.f32(), nullptr});
  }
  void Backward(const Pass& pass) override {
    const TensorSpan x = SpanOf(spec_.x), dy = SpanOf(spec_.dy.tensor);
    SumByChannel(context_.stream, pass, strips_, geometry_.channels,
                 HatTerm{geometry_, x, dy, zeros_, inverse_}, sums_, spec_.dy.scale, spec_.dgamma);
    if (!spec_.dx) return;
    const std::int64_t groups = pass.rows * geometry_.groups;
    const float* gamma = spec_.gamma.f32();
    Launch(context_.stream,
           GroupSums<Along>{geometry_, groups, {x, dy, size_, inverse_, gamma, Count(), along_}},
           GroupThreads::Blocks(groups));
    dx_stats_.Round(pass, SpanOf(spec_.dx.tensor),
                    GroupedNormGradient{geometry_, x, dy, zeros_, inverse_, gamma, zeros_, along_});
  }

 private:
  double Count() const { return geometry_.count(); }

  Context context_;
  GroupedNormSpec spec_;
  Strips strips_;
  NormGroups geometry_;
  RoundingStats y_stats_, dx_stats_;
  float* zeros_ = nullptr;                                         // by group of the batch
  float *size_ = nullptr, *inverse_ = nullptr, *along_ = nullptr;  // the same
  float* sums_ = nullptr;
};

}  // namespace

template <>
std::unique_ptr<Op> MakeOp(const Context& c, const L2NormalizeSpec& s) {
  return std::make_unique<CudaUncenteredNorm<GroupLengths, GroupProjectionsOnX>>(c, s);
}
template <>
std::unique_ptr<Op> MakeOp(const Context& c, const RmsNormSpec& s) {
  return std::make_unique<CudaUncenteredNorm<GroupRootMeanSquares, GroupRmsMeans>>(c, s);
}

}  // namespace ada::backend::cuda
