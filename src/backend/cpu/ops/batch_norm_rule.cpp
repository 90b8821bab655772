// What a batch norm shows to its rule: dy as masked, and its factors as a weight with one value a
// channel. The op masks dy itself, so that no rounding before it has these moments.
#include "backend/cpu/ops/batch_norm_rule.h"

#include "backend/cpu/rounding/blocks.h"
#include "backend/decisions.h"
#include "error.h"

namespace ada::backend::cpu {

BatchNormRule::BatchNormRule(const Context& context, const BatchNormSpec& spec)
    : context_(context),
      spec_(spec),
      scaled_(static_cast<std::size_t>(spec.x.shape.c)),
      tail_(context) {
  // alpha multiplies the factors, and so dx; a rule that wants dy multiplied has no place here.
  ADA_CHECK(spec.dx && spec.scaler != nullptr && !AlphaComesFirst(spec.scaler->rule));
  if (scaling::MayNeedMoments(spec.scaler->rule)) {
    Gradient dy = spec.dy;
    dy.stats = nullptr, dy.moments = &dy_moments_;
    dy.all_moments = scaling::MayNeedAllMoments(spec.scaler->rule);
    dy_stats_ = RoundingStats(dy);
    factor_stats_ =
        RoundingStats::OfParameter(kFp32, spec.x.shape.c, {}, nullptr, &factor_moments_);
  }
  // Observe writes a block of dx before alpha to the worker's memory.
  if (spec.scaler->rule.method == scaling::LayerMethod::kExactRange)
    context.scratch.Reserve(BlockValues(spec.x.shape) * sizeof(float), 0);
}

void BatchNormRule::TakeMoments(const Pass& pass, const std::vector<float>& factor) {
  const Tensor& dy = spec_.dy.tensor;
  ForBlocks(context_, dy.shape, pass.rows,
            [&](std::int64_t image, std::int64_t images, std::int64_t block, int) {
              context_.kernels.inspect(At(dy, image), images * dy.shape.per_image(),
                                       dy_stats_.For(pass, block));
            });
  dy_stats_.Finish(pass);
  ForSegments(
      context_, spec_.x.shape.c,
      [&](std::int64_t first, std::int64_t n, std::int64_t segment, int) {
        float* from = const_cast<float*>(factor.data()) + first;
        context_.kernels.inspect({from, Storage::kF32}, n, factor_stats_.For(pass, segment));
      });
  factor_stats_.Finish(pass);
}

const float* BatchNormRule::Decide(const Pass& pass, const std::vector<float>& factor) {
  // Messages between processes come in a fixed order: moments of dy, of factors, then magnitudes.
  scaling::LayerScaler& scaler = *spec_.scaler;
  const scaling::Needs needs = scaling::NeedsOf(scaler);
  scaling::Observation seen;
  if (needs.moments) {
    TakeMoments(pass, factor);
    seen.dy = MomentsOfAll(context_, dy_moments_, pass.rows * spec_.x.shape.per_image());
    // If each process has its own statistics, each has its own factors.
    seen.w = MomentsOfAll(context_, factor_moments_, spec_.x.shape.c);
  }
  if (needs.products)
    ObserveProducts(MagnitudesOfImages(context_, spec_.dy.tensor, pass.rows),
                    MagnitudesOfAll(context_, MagnitudesOfRows(context_, factor.data(),
                                                               {1, 1, spec_.x.shape.c, 1})),
                    seen);
  scaling::Decide(scaler, seen, *spec_.dy.scale);
  *spec_.dx.scale = scaler.decision.scale_out;
  tail_.Begin(&scaler);
  for (std::size_t i = 0; i < scaled_.size(); ++i) scaled_[i] = factor[i] * scaler.decision.alpha;
  return scaled_.data();
}

void BatchNormRule::Observe(BatchNormBackwardArgs block, int worker) {
  // The kernel writes dx in fp32 to the worker's memory, unrounded, where the tail is counted.
  if (!tail_.wanted()) return;
  auto* dx = reinterpret_cast<float*>(context_.scratch.worker(worker));
  block.dx = {dx, Storage::kF32};
  block.dx_rounding = RoundOnly(kFp32);
  context_.kernels.batch_norm_backward(block);
  tail_.Add(context_.kernels, dx, block.pixels * block.channels, worker);
}

}  // namespace ada::backend::cpu
