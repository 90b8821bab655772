// Moments of a part of the channels: kMomentPositions positions of one image are copied together in
// fp32 and inspected as one block. Blocks are cut by shapes and merged in their order, so that
// results do not depend on the number of threads.
#include "backend/cpu/ops/attention_rule.h"

#include <algorithm>
#include <vector>

#include "backend/cpu/rounding/rounding_stats.h"
#include "backend/cpu/rounding/rule_inputs.h"

namespace ada::backend::cpu {

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
