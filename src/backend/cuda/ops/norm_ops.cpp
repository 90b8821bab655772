// Norms within an image: of groups of values, with means or without, and over neighboring channels.
#include "backend/cuda/context.h"
#include "backend/cuda/kernels/norms.h"
#include "backend/cuda/kernels/strip_sums.h"
#include "backend/cuda/rounding/rounding_stats.h"
#include "backend/decisions.h"

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

// --- Without means ---

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

// --- Local response normalization ---

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
