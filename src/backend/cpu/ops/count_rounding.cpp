// Blocks of a fixed size, merged in their order.
#include "backend/cpu/ops/count_rounding.h"

#include <algorithm>
#include <vector>

#include "backend/cpu/kernels.h"
#include "backend/cpu/ops/merge.h"

namespace ada::backend::cpu {

TensorStats CountRounding(const float* x, std::int64_t n, float factor, const NumberFormat& format,
                          TensorMoments* moments) {
  constexpr std::int64_t kBlock = 16384;
  const Kernels& kernels = SelectKernels();
  std::vector<float> rounded(static_cast<std::size_t>(std::min(n, kBlock)));
  std::vector<BlockStats> blocks;
  for (std::int64_t first = 0; first < n; first += kBlock) {
    Rounding rounding;
    rounding.format = format;
    rounding.count = true;
    rounding.moments = moments != nullptr;
    rounding.stats = &blocks.emplace_back();
    kernels.round(x + first, factor, {rounded.data(), Storage::kF32}, std::min(kBlock, n - first),
                  rounding);
  }
  const auto count = static_cast<std::int64_t>(blocks.size());
  if (moments != nullptr) *moments = MergeMoments(blocks.data(), count);
  return MergeStats(blocks.data(), count, true);
}

}  // namespace ada::backend::cpu
