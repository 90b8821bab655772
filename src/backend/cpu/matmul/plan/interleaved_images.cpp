// See interleaved_images.h.
#include "backend/cpu/matmul/plan/interleaved_images.h"

#include <algorithm>
#include <vector>

#include "backend/block_images.h"

namespace ada::backend::cpu {
namespace {

constexpr int kBlockRows = 16, kPixelBytes = 64;

// Columns of the output that take the same taps: column x reads x * step + tap of the input.
struct Columns {
  int count, step;
  std::vector<int> taps;
};

// Steps of a row of the output, counted in blocks of rows that span `wide` columns each.
std::int64_t StepsOfRow(const std::vector<Columns>& by_phase, std::int64_t in_width, int wide) {
  std::int64_t steps = 0;
  for (const Columns& columns : by_phase)
    for (int x = 0; x < columns.count; x += wide) {
      const int last = std::min(x + wide, columns.count) - 1;
      for (const int tap : columns.taps)
        if (last * columns.step + tap >= 0 && x * columns.step + tap < in_width) ++steps;
    }
  return steps;
}

// in, out: what is read and what is made, of all groups of channels.
// The cost is the number of steps of all row blocks; at equal cost the usual number stays.
int Choose(const MatmulKernels& kernels, const MatmulGeometry& g, const Shape& in, const Shape& out,
           const std::vector<Columns>& by_phase, int images) {
  const int usual = InterleavedImages(by_phase[0].count);
  // Few channels of images lie as windows or dense rows (packed_frame.h).
  if (in.c / g.groups < 16) return usual;
  const int rows = out.c / g.groups >= 2 * kBlockRows ? kernels.rows : kBlockRows;
  const std::int64_t packed_bytes = std::int64_t{kPixelBytes} * (in.h + g.w.h) * (in.w + g.w.w) *
                                    QuotientUp(in.c / g.groups, kernels.on_bf16_dot() ? 32 : 16);
  const auto cost = [&](int interleaved) {
    return QuotientUp(images, interleaved) * std::max(1, interleaved / rows) *
           StepsOfRow(by_phase, in.w, std::max(1, rows / interleaved));
  };
  int best = usual;
  for (int interleaved = 1; interleaved <= std::min(images, kBlockRows); interleaved *= 2)
    if ((interleaved == 1 || interleaved * packed_bytes <= kernels.packed_bytes) &&
        cost(interleaved) < cost(best))
      best = interleaved;
  return best;
}

}  // namespace

int ImagesForOutputs(const MatmulKernels& kernels, const MatmulGeometry& g, int images) {
  Columns columns{static_cast<int>(g.y.w), g.stride[1], {}};
  for (int k = 0; k < g.w.w; ++k) columns.taps.push_back(k * g.dilation[1] - g.padding[1]);
  return Choose(kernels, g, g.x, g.y, {columns}, images);
}

int ImagesForDataGradient(const MatmulKernels& kernels, const MatmulGeometry& g, int images) {
  std::vector<Columns> by_phase;
  const auto width = static_cast<int>(g.x.w);
  for (int q = 0; q < std::min(g.stride[1], width); ++q) {
    Columns columns{QuotientUp(width - q, g.stride[1]), 1, {}};
    for (const Reach& reach : ReachesOf(g, 1, q)) columns.taps.push_back(reach.at);
    by_phase.push_back(columns);
  }
  return Choose(kernels, g, g.y, g.x, by_phase, images);
}

int ImagesForLongRows(const MatmulGeometry& g, int images) {
  constexpr int kPositions = 64;
  int interleaved = InterleavedImages(g.y.w);
  if (g.x.c / g.groups < 16) return interleaved;  // windows and dense rows
  while (interleaved > std::max(1, images)) interleaved /= 2;
  while (2 * interleaved <= std::min(images, kBlockRows) && 2 * interleaved * g.y.w <= kPositions)
    interleaved *= 2;
  return interleaved;
}

}  // namespace ada::backend::cpu
