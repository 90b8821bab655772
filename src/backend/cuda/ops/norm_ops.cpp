// Norms within an image: of groups of values, with means or without, and over neighboring channels.
#include <optional>
#include <type_traits>

#include "backend/cuda/context.h"
#include "backend/cuda/kernels/norms.h"
#include "backend/cuda/kernels/strip_sums.h"
#include "backend/cuda/rounding/rounding_stats.h"
#include "backend/cuda/rounding/row_chain.h"
#include "backend/decisions.h"

namespace ada::backend::cuda {

namespace {

// What dx of a norm is made by: two launches, of what needs not wait for each other. The first has
// the strips of dgamma and dbeta, the groups' means and dy's largest magnitude where it is left to
// this op, the second dx, which may overwrite dy, and the sums over strips. by_group: a kernel of
// the groups.
template <class ByGroup, class Dx>
void LaunchNormGradients(Stream& stream, const Pass& pass, const RoundingStats& dy_stats,
                         const TensorSpan& dy, const RoundingStats& dx_stats, const TensorSpan& dx,
                         const ByGroup& by_group, std::int64_t groups, const Dx& value,
                         const ChannelTotals<HatTerm>& dgamma,
                         const ChannelTotals<PlainTerm>* dbeta) {
  const int group_blocks = GroupThreads::Blocks(groups);
  if (!stream.switches().fused) {
    dy_stats.CountLeft(pass, dy);
    dgamma.LaunchAlone(stream);
    if (dbeta != nullptr) dbeta->LaunchAlone(stream);
    Launch(stream, by_group, group_blocks);
    return dx_stats.Round(pass, dx, value);
  }
  using Hats = ForEachKernel<StripSums<HatTerm>>;
  FusedKernels<ForEachKernel<ParameterSum>, 2> totals;
  totals.Add(dgamma.totals, dgamma.totals.Blocks());
  using Plains = ForEachKernel<StripSums<PlainTerm>>;
  using Strips = FusedPair<Hats, Plains>;
  Strips strips{dgamma.strip_sums, {}, dgamma.strip_sums.Blocks()};
  int blocks = strips.first_blocks, left_blocks = 0;
  if (dbeta != nullptr) {
    totals.Add(dbeta->totals, dbeta->totals.Blocks());
    strips.second = dbeta->strip_sums, blocks += dbeta->strip_sums.Blocks();
  }
  const auto left = dy_stats.LeftKernel(pass, dy, left_blocks);
  using OfGroups = FusedPair<Strips, ByGroup>;
  const OfGroups of_groups{strips, by_group, blocks};
  blocks += group_blocks;
  Launch(stream, FusedPair<OfGroups, std::decay_t<decltype(left)>>{of_groups, left, blocks},
         blocks + left_blocks);
  dx_stats.RoundWith(pass, dx, value, 0, [&](const auto& kernel, auto level, int of_dx) {
    using Both = FusedPair<std::decay_t<decltype(kernel)>, decltype(totals)>;
    dx_stats.LaunchAndDecide(Both{kernel, totals, of_dx}, level, of_dx + totals.blocks());
  });
}

// y, and in the same blocks the statistics of the groups that they are of: those of the pixels'
// channels, where at most the largest magnitude is measured. Sums of moments and counts go by the
// blocks of all other kernels.
template <class ByGroup, class Value>
void LaunchNorm(Stream& stream, const Pass& pass, const RoundingStats& y_stats, const TensorSpan& y,
                const ByGroup& by_group, const Value& value) {
  const int blocks = GroupThreads::Blocks(by_group.groups);
  const StatsLevel level = y_stats.Level(pass);
  if (!stream.switches().fused || !by_group.geometry.by_pixel || level > StatsLevel::kLargest) {
    Launch(stream, by_group, blocks);
    return y_stats.Round(pass, y, value);
  }
  const Rounding how = y_stats.For(pass);
  const std::int64_t size = GroupThreads::kGroups * by_group.geometry.run;
  const auto launch = [&](auto of_level) {
    using Values = RoundValuesKernel<Value, decltype(of_level)::value>;
    Launch(stream, FusedPhases<ByGroup, Values>{by_group, {{how, how.values, size}, value, y}},
           blocks);
  };
  if (level == StatsLevel::kNone)
    launch(std::integral_constant<StatsLevel, StatsLevel::kNone>());
  else
    launch(std::integral_constant<StatsLevel, StatsLevel::kLargest>());
}

// The op of a layer norm or a group norm; norms without a mean are uncentered_norm_op's. Forward
// finds each group's mean and inverse deviation, which Backward reads again.
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
    dy_stats_ = RoundingStats::OfLeft(context, spec.dy);
    mean_g_ = context.Allocate<float>(count), mean_ghat_ = context.Allocate<float>(count);
    for (float*& sums : sums_)
      sums = context.Allocate<float>(shape.n * strips_.per_image() * shape.c);
  }
  void Forward(const Pass& pass) override {
    const std::int64_t groups = pass.rows * geometry_.groups;
    const GroupStatistics by_group{
        geometry_, groups, SpanOf(spec_.x), static_cast<double>(spec_.eps), mean_, inverse_};
    const GroupedNormValue value{geometry_, SpanOf(spec_.x),   mean_,
                                 inverse_,  spec_.gamma.f32(), beta_};
    if (!context_.row_chain.End(pass, y_stats_, spec_.x, spec_.y, by_group, value))
      LaunchNorm(context_.stream, pass, y_stats_, SpanOf(spec_.y), by_group, value);
  }
  void Backward(const Pass& pass) override {
    const TensorSpan x = SpanOf(spec_.x), dy = SpanOf(spec_.dy.tensor);
    const ChannelTotals dgamma(pass, strips_, geometry_.channels,
                               HatTerm{geometry_, x, dy, mean_, inverse_}, sums_[0], spec_.dy.scale,
                               spec_.dgamma);
    std::optional<ChannelTotals<PlainTerm>> dbeta;
    if (spec_.dbeta)
      dbeta.emplace(pass, strips_, geometry_.channels, PlainTerm{dy}, sums_[1], spec_.dy.scale,
                    spec_.dbeta);
    if (!spec_.dx) {
      dy_stats_.CountLeft(pass, dy);
      dgamma.LaunchAlone(context_.stream);
      if (dbeta) dbeta->LaunchAlone(context_.stream);
      return;
    }
    const std::int64_t groups = pass.rows * geometry_.groups;
    const float* gamma = spec_.gamma.f32();
    // dx subtracts the means over a group of dy * gamma and of that times xhat.
    LaunchNormGradients(
        context_.stream, pass, dy_stats_, dy, dx_stats_, SpanOf(spec_.dx.tensor),
        GroupGradientMeans{geometry_, groups, x, dy, mean_, inverse_, gamma, mean_g_, mean_ghat_},
        groups, GroupedNormGradient{geometry_, x, dy, mean_, inverse_, gamma, mean_g_, mean_ghat_},
        dgamma, dbeta ? &*dbeta : nullptr);
  }

 private:
  Context context_;
  GroupedNormSpec spec_;
  Strips strips_;
  NormGroups geometry_;
  RoundingStats y_stats_, dy_stats_, dx_stats_;
  const float* beta_ = nullptr;                     // zeros where the norm has none
  float *mean_ = nullptr, *inverse_ = nullptr;      // by group of the batch
  float *mean_g_ = nullptr, *mean_ghat_ = nullptr;  // the same
  float* sums_[2] = {};                             // of strips: of dgamma, of dbeta
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
    dy_stats_ = RoundingStats::OfLeft(context, spec.dy);
    along_ = context.Allocate<float>(groups);
    sums_ = context.Allocate<float>(shape.n * strips_.per_image() * shape.c);
  }
  void Forward(const Pass& pass) override {
    const std::int64_t groups = pass.rows * geometry_.groups;
    LaunchNorm(
        context_.stream, pass, y_stats_, SpanOf(spec_.y),
        GroupSums<Sizes>{
            geometry_,
            groups,
            {SpanOf(spec_.x), static_cast<double>(spec_.eps), Count(), size_, inverse_}},
        GroupedNormValue{geometry_, SpanOf(spec_.x), zeros_, inverse_, spec_.gamma.f32(), nullptr});
  }
  void Backward(const Pass& pass) override {
    const TensorSpan x = SpanOf(spec_.x), dy = SpanOf(spec_.dy.tensor);
    const ChannelTotals dgamma(pass, strips_, geometry_.channels,
                               HatTerm{geometry_, x, dy, zeros_, inverse_}, sums_, spec_.dy.scale,
                               spec_.dgamma);
    if (!spec_.dx) {
      dy_stats_.CountLeft(pass, dy);
      return dgamma.LaunchAlone(context_.stream);
    }
    const std::int64_t groups = pass.rows * geometry_.groups;
    const float* gamma = spec_.gamma.f32();
    LaunchNormGradients(
        context_.stream, pass, dy_stats_, dy, dx_stats_, SpanOf(spec_.dx.tensor),
        GroupSums<Along>{geometry_, groups, {x, dy, size_, inverse_, gamma, Count(), along_}},
        groups, GroupedNormGradient{geometry_, x, dy, zeros_, inverse_, gamma, zeros_, along_},
        dgamma, nullptr);
  }

 private:
  double Count() const { return geometry_.count(); }

  Context context_;
  GroupedNormSpec spec_;
  Strips strips_;
  NormGroups geometry_;
  RoundingStats y_stats_, dy_stats_, dx_stats_;
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
