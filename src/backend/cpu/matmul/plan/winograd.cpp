// See winograd.h.
#include "backend/cpu/matmul/plan/winograd.h"

#include <algorithm>

namespace ada::backend::cpu {
namespace {

// Bounds of a batch's memory. Fewer tiles than the least would read all weights too often.
constexpr std::int64_t kBatchBytes = 1 << 19;
constexpr int kLeastTiles = 48, kMostTiles = 256;

std::int64_t LeastSize(const MatmulGeometry& g) { return std::min({g.x.h, g.x.w, g.y.h, g.y.w}); }

}  // namespace

// With few channels transforming costs more than multiplying saves.
bool TakesWinograd(const MatmulGeometry& g) {
  constexpr int kLeastChannels = 16, kLeastSize = 2;
  const auto is = [](const std::array<int, 2>& both, int value) {
    return both[0] == value && both[1] == value;
  };
  return !g.linear && g.groups == 1 && g.w.h == 3 && g.w.w == 3 && is(g.stride, 1) &&
         is(g.dilation, 1) && g.padding[0] <= 2 && g.padding[1] <= 2 &&
         std::min(g.x.c, g.y.c) >= kLeastChannels && LeastSize(g) >= kLeastSize;
}
// In smaller images some weights meet few pixels, and their dw would be made of much larger sums.
bool TakesWinogradGradient(const MatmulGeometry& g) {
  constexpr int kLeastGradientSize = 4;
  return TakesWinograd(g) && LeastSize(g) >= kLeastGradientSize;
}

// Runs are parts of a row of tiles, so that neighbors share the columns that they read.
WinogradBatches::WinogradBatches(const WinogradKernels& kernels, std::int64_t h, std::int64_t w,
                                 std::int64_t values)
    : rows_(QuotientUp(h, 2)), columns_(QuotientUp(w, 2)) {
  const auto most =
      static_cast<int>(std::clamp<std::int64_t>(kBatchBytes / 4 / values, kLeastTiles, kMostTiles));
  run_ = std::min(columns_, most);
  room_ = QuotientUp(most, kernels.room_multiple) * kernels.room_multiple;
}

}  // namespace ada::backend::cpu
