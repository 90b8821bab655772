// See side_by_side.h.
#include "backend/cpu/products/side_by_side.h"

#include <algorithm>
#include <vector>

#include "backend/block_images.h"

namespace ada::backend::cpu {
namespace {

constexpr int kTileRows = 16, kRecordBytes = 64;

// Columns of the output that take the same taps: column x reads x * step + tap of the input.
struct Columns {
  int count, step;
  std::vector<int> taps;
};

// Steps of a row of the output, counted in blocks of rows that span `wide` columns each.
std::int64_t StepsOfRow(const std::vector<Columns>& by_remainder, std::int64_t in_width, int wide) {
  std::int64_t steps = 0;
  for (const Columns& columns : by_remainder)
    for (int x = 0; x < columns.count; x += wide) {
      const int last = std::min(x + wide, columns.count) - 1;
      for (const int tap : columns.taps)
        if (last * columns.step + tap >= 0 && x * columns.step + tap < in_width) ++steps;
    }
  return steps;
}

// in, out: what is read and what is made, of all groups of channels.
int Choose(const TileKernels& kernels, const ProductGeometry& g, const Shape& in, const Shape& out,
           const std::vector<Columns>& by_remainder, int images) {
  const int usual = ImagesTogether(by_remainder[0].count);
  // Few channels of images lie as windows or runs (tile_frame.h).
  if (in.c / g.groups < 16) return usual;
  const int rows = out.c / g.groups >= 2 * kTileRows ? kernels.rows : kTileRows;
  const std::int64_t record_bytes = std::int64_t{kRecordBytes} * (in.h + g.w.h) * (in.w + g.w.w) *
                                    QuotientUp(in.c / g.groups, kernels.of_pairs() ? 32 : 16);
  const auto cost = [&](int together) {
    return QuotientUp(images, together) * std::max(1, together / rows) *
           StepsOfRow(by_remainder, in.w, std::max(1, rows / together));
  };
  int best = usual;
  for (int together = 1; together <= std::min(images, kTileRows); together *= 2)
    if ((together == 1 || together * record_bytes <= kernels.record_bytes) &&
        cost(together) < cost(best))
      best = together;
  return best;
}

}  // namespace

int ImagesForOutputs(const TileKernels& kernels, const ProductGeometry& g, int images) {
  Columns columns{static_cast<int>(g.y.w), g.stride[1], {}};
  for (int k = 0; k < g.w.w; ++k) columns.taps.push_back(k * g.dilation[1] - g.padding[1]);
  return Choose(kernels, g, g.x, g.y, {columns}, images);
}

int ImagesForDataGradient(const TileKernels& kernels, const ProductGeometry& g, int images) {
  std::vector<Columns> by_remainder;
  const auto width = static_cast<int>(g.x.w);
  for (int q = 0; q < std::min(g.stride[1], width); ++q) {
    Columns columns{QuotientUp(width - q, g.stride[1]), 1, {}};
    for (const Reach& reach : ReachesOf(g, 1, q)) columns.taps.push_back(reach.at);
    by_remainder.push_back(columns);
  }
  return Choose(kernels, g, g.y, g.x, by_remainder, images);
}

int ImagesForLongRows(const ProductGeometry& g, int images) {
  constexpr int kPositions = 64;
  int together = ImagesTogether(g.y.w);
  if (g.x.c / g.groups < 16) return together;  // windows and runs
  while (together > std::max(1, images)) together /= 2;
  while (2 * together <= std::min(images, kTileRows) && 2 * together * g.y.w <= kPositions)
    together *= 2;
  return together;
}

}  // namespace ada::backend::cpu
