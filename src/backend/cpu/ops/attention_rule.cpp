#include "backend/cpu/ops/attention_rule.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "backend/cpu/rounding/rounding_stats.h"
#include "backend/cpu/rounding/rule_inputs.h"

namespace ada::backend::cpu {
namespace {

double Largest(const TensorMoments& m) {
  if (!std::isfinite(m.mean_square)) return m.mean_square;
  return std::max(std::fabs(static_cast<double>(m.min)), std::fabs(static_cast<double>(m.max)));
}

}  // namespace

TensorMoments Times(TensorMoments moments, double factor) {
  const auto times = [factor](float x) {
    return static_cast<float>(static_cast<double>(x) * factor);
  };
  moments.mean *= factor, moments.mean_square *= factor * factor;
  moments.min = times(moments.min), moments.max = times(moments.max);
  moments.min_abs = times(moments.min_abs);
  return moments;
}

TensorMoments Together(const TensorMoments& one, const TensorMoments& other) {
  TensorMoments both;
  both.mean = 0;
  both.mean_square = one.mean_square * other.mean_square;
  both.max = static_cast<float>(Largest(one) * Largest(other));
  both.min = -both.max;
  both.min_abs = one.min_abs * other.min_abs;
  return both;
}

scaling::Observation Seen(const TensorMoments& gradient, const TensorMoments& factor) {
  scaling::Observation seen;
  seen.dy = gradient, seen.w = factor;
  seen.product_max = Largest(gradient) * Largest(factor);
  if (seen.product_max != 0)
    seen.product_min = static_cast<double>(gradient.min_abs) * static_cast<double>(factor.min_abs);
  return seen;
}

TensorMoments MomentsOfPart(const Context& context, const Tensor& tensor, std::int64_t first,
                            std::int64_t channels, int rows) {
  const std::int64_t positions = tensor.shape.h * tensor.shape.w;
  const std::int64_t per_image = (positions + kMomentPositions - 1) / kMomentPositions;
  std::vector<BlockStats> blocks(static_cast<std::size_t>(rows * per_image));
  context.pool.For(rows * per_image, [&](std::int64_t i, int worker) {
    const std::int64_t begin = i % per_image * kMomentPositions;
    const std::int64_t count = std::min(kMomentPositions, positions - begin);
    auto* values = reinterpret_cast<float*>(context.scratch.worker(worker));
    for (std::int64_t t = 0; t < count; ++t)
      context.kernels.widen(
          Advance(At(tensor, i / per_image), (begin + t) * tensor.shape.c + first),
          values + t * channels, channels);
    Rounding rounding;
    rounding.moments = true;
    rounding.stats = &blocks[static_cast<std::size_t>(i)];
    context.kernels.inspect({values, Storage::kF32}, count * channels, rounding);
  });
  const TensorMoments mine = MergeMoments(blocks.data(), static_cast<std::int64_t>(blocks.size()));
  return MomentsOfAll(context, mine, rows * positions * channels);
}

}  // namespace ada::backend::cpu
