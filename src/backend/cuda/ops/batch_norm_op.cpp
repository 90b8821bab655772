// Batch norm as in PyTorch, in two launches in each direction: sums over pixels, whose last blocks
// compute the channels' values, and the values. Sums over all processes (parallel.sync_batch_norm)
// take one message each way.
#include <cstddef>
#include <cstdint>
#include <optional>

#include "backend/cuda/context.h"
#include "backend/cuda/kernels/batch_norm.h"
#include "backend/cuda/kernels/channel_sums.h"
#include "backend/cuda/kernels/channel_sums_vec8.h"
#include "backend/cuda/kernels/channel_totals.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/link.h"
#include "backend/cuda/rounding/alpha_rule.h"
#include "backend/cuda/rounding/rounding_stats.h"
#include "backend/decisions.h"
#include "error.h"

namespace ada::backend::cuda {
namespace {

// Batch norm's sums over all processes (parallel.sync_batch_norm), in the stream. Belongs to a
// batch norm op. Kernels put this process's count and two sums by channel to part(); Join gathers
// those of all processes and makes of them what the op reads, in the order of processes.
class JoinedNorm {
 public:
  // Works in a context that has a link.
  JoinedNorm(const Context& context, std::int64_t channels)
      : context_(context),
        bytes_(static_cast<std::size_t>(2 * channels + 1) * sizeof(double)),
        part_(context.Allocate<double>(2 * channels + 1)),
        all_(context.Allocate<double>((2 * channels + 1) * context.link->ranks())),
        parts_{all_, context.link->ranks(), channels} {}

  // Where this process's sums go.
  NormPart part() const { return {part_}; }
  // After them: what they would have made of this process's sums is made of those of all.
  void Join(const BatchStatistics& of) const {
    context_.link->AllGatherInStream(part_, bytes_, all_);
    ForEach(context_.stream, parts_.channels,
            JoinStatistics{parts_, of.to, of.running_mean, of.running_var, of.momentum});
  }
  void Join(const ReduceGradient& of) const {
    context_.link->AllGatherInStream(part_, bytes_, all_);
    ForEach(context_.stream, parts_.channels,
            JoinGradientSums{parts_, of.inverse, of.scale, of.mean_dy, of.slope});
  }

 private:
  Context context_;
  std::size_t bytes_;
  double *part_, *all_;
  NormParts parts_;
};

// The op of a BatchNormSpec, but for recomputed ones, which this backend declines. Backward goes
// with the last Forward: it reads the means, deviations and factors that this one left in backend
// memory.
class CudaBatchNorm final : public Op {
 public:
  CudaBatchNorm(const Context& context, const BatchNormSpec& spec)
      : context_(context),
        spec_(spec),
        cut_(spec.x.shape.c, spec.x.shape.n * spec.x.shape.h * spec.x.shape.w) {
    y_stats_ = RoundingStats(context, NormalizedTensorOf(spec), spec.y_style, spec.y_stats);
    if (spec.addend) sum_stats_ = RoundingStats(context, spec.out, spec.sum_style, spec.sum_stats);
    const std::int64_t c = cut_.channels, partials = cut_.Count(spec.x.shape.n * pixels()) * c;
    factors_ = {context.Allocate<float>(c), context.Allocate<float>(c), context.Allocate<float>(c),
                spec.gamma.f32(), static_cast<double>(spec.eps)};
    for (float*& sums : sums_) sums = context.Allocate<float>(partials);
    lanes_ = context.Allocate<LaneSums>(c * PartLanes::kLanes);
    finished_ = context.AllocateZeroed<std::uint32_t>(SumCounters(Columns()));
    if (context.link != nullptr) joined_.emplace(context, c);
    // Two words in which a sums kernel collects the largest magnitudes that products before this op
    // left to it.
    if (spec.x_stats != nullptr || spec.dy.amax_deferred)
      notes_ = context.AllocateZeroed<std::uint32_t>(2);
    if (!spec.dx && !spec.dgamma) return;  // evaluation
    mask_ = MaskOf(spec);
    dx_stats_ = RoundingStats(context, spec.dx);
    if (spec.dx && spec.scaler != nullptr)
      MakeRule();
    else
      dx_stats_.PassScale(spec.dy);
    mean_dy_ = context.Allocate<float>(c), slope_ = context.Allocate<float>(c);
  }

  void Forward(const Pass& pass) override {
    if (pass.training)
      TakeStatistics(pass);
    else
      ForEach(context_.stream, cut_.channels,
              RunningStatistics{factors_, spec_.running_mean.f32(), spec_.running_var.f32()});
    const StatsLevel y = y_stats_.Level(pass), sum = sum_stats_.Level(pass);
    // Where both roundings are measured and one of them is counted, a launch that stores nothing
    // counts the first: no kernel has room for both.
    const bool apart = sum != StatsLevel::kNone && y != StatsLevel::kNone &&
                       (y == StatsLevel::kCounts || sum == StatsLevel::kCounts);
    if (apart) Normalize(pass, y, StatsLevel::kNone, /*store=*/false);
    Normalize(pass, apart ? StatsLevel::kNone : y, sum, /*store=*/true);
  }

  void Backward(const Pass& pass) override {
    TakeGradientSums(pass);
    if (!spec_.dx) return;
    NormGradient gradient;
    gradient.channels = static_cast<std::uint32_t>(cut_.channels);
    gradient.x = SpanOf(spec_.x), gradient.dy = SpanOf(spec_.dy.tensor);
    gradient.mean = factors_.mean, gradient.factor = factors_.factor;
    gradient.mean_dy = mean_dy_, gradient.slope = slope_;
    if (mask_ == Masks::kX)
      // dy is not masked in memory then: the kernel tells from x, as the forward pass rounded,
      // whether y was zero.
      gradient.beta = spec_.beta.f32(), gradient.largest_zero = LargestZero(spec_.out.storage);
    if (rule_) gradient.factor = Decide(pass, gradient);
    dx_stats_.Round(pass, SpanOf(spec_.dx.tensor), gradient);
  }

 private:
  // Whether sums over this tensor read eight values at a time.
  bool SumsVec8(const Tensor& tensor) const {
    return context_.stream.switches().plain && cut_.channels % 8 == 0 &&
           tensor.storage == spec_.x.storage && HasVec8(SpanOf(tensor));
  }
  // A plainly rounded y can be computed from x again to mask its gradient. The masked dy need not
  // be stored then, if dx overwrites it and no rule reads it.
  Masks MaskOf(const BatchNormSpec& spec) const {
    if (!spec.relu) return Masks::kNone;
    const bool plainly = spec.out.format == FormatOf(spec.out.storage) &&
                         spec.y_style.per_tensor_scale == nullptr && !spec.y_style.stochastic;
    const bool alone = !spec.addend && spec.scaler == nullptr && spec.dx &&
                       spec.dx.tensor.data == spec.dy.tensor.data;
    // The kernel that masks by x is one of eight values at a time.
    const bool vec8 = SumsVec8(spec.x) && SumsVec8(spec.dy.tensor) && SumsVec8(spec.out) &&
                      IsOnSixteen(spec.beta.data);
    return plainly && alone && vec8 ? Masks::kX : Masks::kOutput;
  }

  // The rule looks at dy as masked and at the factors, both of which the op makes.
  void MakeRule() {
    const std::int64_t c = cut_.channels;
    const scaling::LayerRule& rule = context_.Host(spec_.scaler)->rule;
    ADA_CHECK(!AlphaComesFirst(rule));
    Gradient dy = spec_.dy;
    RuleWeights weights{nullptr, {factors_.factor, Storage::kF32}, c, 1, /*own=*/true};
    if (scaling::MayNeedMoments(rule)) {
      auto* moments = context_.Allocate<TensorMoments>(2);
      // Only moments are measured of these two; the counts of dy are those of whoever rounded it.
      dy.stats = nullptr, dy.moments = moments, weights.moments = moments + 1;
      dy.all_moments = scaling::MayNeedAllMoments(rule);
      dy_stats_ = RoundingStats(context_, dy);
      factor_stats_ =
          RoundingStats::OfParameter(context_, kFp32, Storage::kF32, c, {}, nullptr, moments + 1);
    }
    rule_.emplace(context_, spec_.scaler, dy, spec_.dx, weights);
    scaled_ = context_.Allocate<float>(c);
  }
  // The factors times alpha. `gradient`: dx before alpha.
  const float* Decide(const Pass& pass, const NormGradient& gradient) {
    if (dy_stats_.wanted()) {
      dy_stats_.Count(pass, SpanOf(spec_.dy.tensor));
      factor_stats_.Count(pass, {factors_.factor, Storage::kF32});
    }
    rule_->Decide(pass);
    rule_->Observe(gradient, pass.rows * spec_.x.shape.per_image());
    ForEach(context_.stream, cut_.channels,
            ScaledFactors{factors_.factor, rule_->alpha(), scaled_});
    return scaled_;
  }

  // The largest magnitude that this op must record; empty in other passes.
  DeferredAmax NoteOfX(const Pass& pass) const {
    if (!DefersAmax(pass, spec_.x_style, spec_.x_stats)) return {};
    return {notes_, spec_.x_stats, pass.rows * spec_.x.shape.per_image()};
  }
  DeferredAmax NoteOfDy(const Pass& pass) const {
    const Gradient& dy = spec_.dy;
    if (!dy.amax_deferred || !DefersAmax(pass, dy.style, dy.stats, dy.moments)) return {};
    return {notes_ + 1, dy.stats, pass.rows * dy.tensor.shape.per_image()};
  }

  std::int64_t Columns() const {
    return (cut_.channels + PixelParts::kChannels - 1) / PixelParts::kChannels;
  }
  std::int64_t pixels() const { return spec_.x.shape.h * spec_.x.shape.w; }  // of an image
  std::int64_t Pixels(const Pass& pass) const { return pass.rows * pixels(); }
  std::int64_t Parts(const Pass& pass) const { return cut_.Count(Pixels(pass)); }

  // Chooses the kernel of the sums by x's storage; those of eight values at a time read 16 bits
  // only.
  void TakeStatistics(const Pass& pass) {
    switch (StorageTypeOf(spec_.x.storage)) {
      case StorageType::kF16:
        return TakeStatisticsOf<StorageType::kF16>(pass);
      case StorageType::kBF16:
        return TakeStatisticsOf<StorageType::kBF16>(pass);
      default:
        return TakeStatisticsOf<StorageType::kF32>(pass);
    }
  }
  template <StorageType kStorageType>
  void TakeStatisticsOf(const Pass& pass) {
    if constexpr (kStorageType != StorageType::kF32)
      if (SumsVec8(spec_.x)) return LaunchMoments<Vec8MomentsKernel<kStorageType>>(pass);
    LaunchMoments<ChannelMomentsKernel<kStorageType>>(pass);
  }
  // What channels make of the sums: mean, deviation, factor and the running averages.
  BatchStatistics Statistics(const Pass& pass) const {
    BatchStatistics statistics;
    statistics.cut = cut_, statistics.parts = Parts(pass), statistics.pixels = Pixels(pass);
    statistics.part_mean = sums_[0], statistics.part_m2 = sums_[1];
    statistics.to = factors_;
    statistics.running_mean = spec_.running_mean.f32();
    statistics.running_var = spec_.running_var.f32();
    statistics.momentum = static_cast<double>(spec_.momentum);
    statistics.note = NoteOfX(pass);
    return statistics;
  }

  template <class Kernel>
  void LaunchMoments(const Pass& pass) {
    Kernel moments;
    moments.threads = {cut_, Pixels(pass)};
    moments.x = SpanOf(spec_.x);
    moments.mean = sums_[0], moments.m2 = sums_[1];
    moments.note = NoteOfX(pass);
    LaunchTotals(moments, Statistics(pass));
  }

  ReduceGradient Reduction(const Pass& pass) const {
    ReduceGradient reduce;
    reduce.cut = cut_, reduce.parts = Parts(pass), reduce.pixels = Pixels(pass);
    reduce.sum_dy = sums_[0], reduce.sum_dy_xhat = sums_[1];
    reduce.inverse = factors_.inverse, reduce.scale = spec_.dy.scale;
    reduce.mean_dy = mean_dy_, reduce.slope = slope_;
    reduce.dgamma = spec_.dgamma.f32(), reduce.dbeta = spec_.dbeta.f32();
    reduce.accumulate = pass.accumulate;
    reduce.note = NoteOfDy(pass);
    return reduce;
  }
  // Masks dy where a relu follows.
  void TakeGradientSums(const Pass& pass) {
    const Storage storage = spec_.x.storage;
    // Kernels for one storage take x, dy and out in it; kAny asks each value for its tensor's
    // storage.
    const bool alike =
        storage == spec_.dy.tensor.storage && (!spec_.relu || storage == spec_.out.storage);
    switch (alike ? StorageTypeOf(storage) : StorageType::kAny) {
      case StorageType::kF32:
        return TakeGradientSumsOf<StorageType::kF32>(pass);
      case StorageType::kF16:
        return TakeGradientSumsOf<StorageType::kF16>(pass);
      case StorageType::kBF16:
        return TakeGradientSumsOf<StorageType::kBF16>(pass);
      case StorageType::kAny:
        return TakeGradientSumsOf<StorageType::kAny>(pass);
    }
  }
  template <StorageType kStorageType>
  void TakeGradientSumsOf(const Pass& pass) {
    if constexpr (kStorageType == StorageType::kF16 || kStorageType == StorageType::kBF16) {
      const bool vec8 =
          SumsVec8(spec_.x) && SumsVec8(spec_.dy.tensor) && (!spec_.relu || SumsVec8(spec_.out));
      if (vec8 && mask_ == Masks::kNone)
        return LaunchSums(pass, Vec8GradientsKernel<kStorageType, Masks::kNone>());
      if (vec8 && mask_ == Masks::kOutput)
        return LaunchSums(pass, Vec8GradientsKernel<kStorageType, Masks::kOutput>());
      if (mask_ == Masks::kX) {
        Vec8GradientsKernel<kStorageType, Masks::kX> sums;
        sums.factor = factors_.factor, sums.beta = spec_.beta.f32();
        sums.largest_zero = LargestZero(spec_.out.storage);
        return LaunchSums(pass, sums);
      }
    }
    LaunchSums(pass, GradientSumsKernel<kStorageType>());
  }
  template <class Kernel>
  void LaunchSums(const Pass& pass, Kernel sums) {
    sums.threads = {cut_, Pixels(pass)};
    sums.x = SpanOf(spec_.x), sums.dy = SpanOf(spec_.dy.tensor);
    if (mask_ == Masks::kOutput) sums.out = SpanOf(spec_.out);
    sums.mean = factors_.mean, sums.inverse = factors_.inverse;
    sums.sum_dy = sums_[0], sums.sum_dy_xhat = sums_[1];
    sums.note = NoteOfDy(pass);
    LaunchTotals(sums, Reduction(pass));
  }

  // The sums over parts and `of`, with those of other processes if norms are shared.
  template <class Sums, class Of>
  void LaunchTotals(const Sums& sums, Of of) const {
    const bool joins = NormsLink(context_.link) != nullptr;
    if (joins) of.part = joined_->part();
    if (context_.stream.switches().last_block) {
      Launch(context_.stream, SumsAndTotals<Sums, Of>{sums, of, finished_, lanes_},
             sums.threads.Blocks());
    } else {
      Launch(context_.stream, sums, sums.threads.Blocks());
      const ChannelTotalsKernel<Of> totals{of};
      Launch(context_.stream, totals, totals.Blocks());
    }
    if (joins) joined_->Join(of);
  }

  // The values, with y and the sum measured at these levels: where both are, neither is counted,
  // for which there is no room.
  void Normalize(const Pass& pass, StatsLevel y, StatsLevel sum, bool store) {
    const bool plain =
        store && IsPlain(pass) && y <= StatsLevel::kLargest && sum <= StatsLevel::kLargest;
    if (plain && spec_.out.storage == Storage::kF16)
      return NormalizeAs<StorageType::kF16>(pass, y, sum);
    if (plain) return NormalizeAs<StorageType::kBF16>(pass, y, sum);
    if (y == StatsLevel::kCounts)
      LaunchValues<StatsLevel::kCounts, StatsLevel::kNone>(pass, store);
    else if (sum == StatsLevel::kCounts)
      LaunchValues<StatsLevel::kNone, StatsLevel::kCounts>(pass, store);
    else if (y == StatsLevel::kLargest && sum == StatsLevel::kLargest)
      LaunchValues<StatsLevel::kLargest, StatsLevel::kLargest>(pass, store);
    else if (y == StatsLevel::kLargest)
      LaunchValues<StatsLevel::kLargest, StatsLevel::kNone>(pass, store);
    else if (sum == StatsLevel::kLargest)
      LaunchValues<StatsLevel::kNone, StatsLevel::kLargest>(pass, store);
    else
      LaunchValues<StatsLevel::kNone, StatsLevel::kNone>(pass, store);
  }
  // Whether this call's roundings are those of round_values.h, by eights that keep their channels.
  bool IsPlain(const Pass& pass) const {
    const Storage storage = spec_.out.storage;
    const auto is_plain = [&](const RoundingStats& of, const Tensor& tensor) {
      return of.PlainlyAs(pass) != StorageType::kAny && SumsVec8(tensor);
    };
    return KeepsChannels(cut_.channels) && SumsVec8(spec_.x) && spec_.x.storage == storage &&
           IsOnSixteen(spec_.beta.data) && is_plain(y_stats_, spec_.out) &&
           (!spec_.addend || (SumsVec8(spec_.addend) && is_plain(sum_stats_, spec_.out)));
  }
  // Chooses the kernel that measures no more than is asked for: without an addend there is only y.
  template <StorageType kStorageType>
  void NormalizeAs(const Pass& pass, StatsLevel y, StatsLevel sum) {
    constexpr StatsLevel kNone = StatsLevel::kNone, kLargest = StatsLevel::kLargest;
    if (!spec_.addend)
      y == kNone ? LaunchPlain<kStorageType, false, kNone, kNone>(pass)
                 : LaunchPlain<kStorageType, false, kLargest, kNone>(pass);
    else if (y == kNone)
      sum == kNone ? LaunchPlain<kStorageType, true, kNone, kNone>(pass)
                   : LaunchPlain<kStorageType, true, kNone, kLargest>(pass);
    else
      sum == kNone ? LaunchPlain<kStorageType, true, kLargest, kNone>(pass)
                   : LaunchPlain<kStorageType, true, kLargest, kLargest>(pass);
  }
  template <StorageType kStorageType, bool kAdds, StatsLevel kY, StatsLevel kSum>
  void LaunchPlain(const Pass& pass) {
    LaunchFilled(pass, NormalizePlainKernel<kStorageType, kAdds, kY, kSum>());
  }
  template <StatsLevel kY, StatsLevel kSum>
  void LaunchValues(const Pass& pass, bool store) {
    NormalizeKernel<kY, kSum> kernel;
    kernel.store = store;
    LaunchFilled(pass, kernel);
  }
  // Fills in what both kinds of kernels need: x, addend, out, factors and roundings.
  template <class Kernel>
  void LaunchFilled(const Pass& pass, Kernel kernel) {
    const std::int64_t values = pass.rows * spec_.x.shape.per_image();
    const FlatBlocks flat = FlatBlocksOf(values);
    kernel.norm.channels = static_cast<std::uint32_t>(cut_.channels);
    kernel.norm.x = SpanOf(spec_.x), kernel.norm.beta = spec_.beta.f32();
    kernel.norm.mean = factors_.mean, kernel.norm.factor = factors_.factor;
    if (spec_.addend) kernel.addend = SpanOf(spec_.addend);
    kernel.out = SpanOf(spec_.out);
    kernel.relu = spec_.relu;
    kernel.values = values, kernel.size = flat.size;
    kernel.y = y_stats_.For(pass);
    if (spec_.addend) kernel.sum = sum_stats_.For(pass);
    Launch(context_.stream, kernel, flat.blocks);
  }

  Context context_;
  BatchNormSpec spec_;
  PixelParts cut_;
  ChannelFactors factors_;
  float* sums_[2] = {};                // [parts, channels]: mean and m2, then of dy and dy * xhat
  LaneSums* lanes_ = nullptr;          // of sums over parts
  std::uint32_t* finished_ = nullptr;  // blocks of these
  float *mean_dy_ = nullptr, *slope_ = nullptr;
  std::uint32_t* notes_ = nullptr;  // of x, of dy
  Masks mask_ = Masks::kNone;
  float* scaled_ = nullptr;  // factors times alpha, with a rule
  RoundingStats y_stats_, sum_stats_, dx_stats_, dy_stats_, factor_stats_;
  std::optional<AlphaRule> rule_;     // none: alpha is 1
  std::optional<JoinedNorm> joined_;  // of a run that several processes share
};

}  // namespace

template <>
std::unique_ptr<Op> MakeOp(const Context& context, const BatchNormSpec& spec) {
  if (spec.recomputed) return nullptr;
  return std::make_unique<CudaBatchNorm>(context, spec);
}

}  // namespace ada::backend::cuda
