// Which rows and columns are multiplied with each tap; see depthwise_chunks.h.
#include <algorithm>

#include "backend/cpu/context.h"
#include "backend/cpu/matmul/plan/depthwise_chunks.h"

namespace ada::backend::cpu {

DepthwisePlan DepthwisePlan::Forward(const MatmulGeometry& g) {
  DepthwisePlan plan;
  plan.in = g.x, plan.out = g.y, plan.in_step = g.stride, plan.planes = static_cast<int>(g.w.c);
  Part part;
  part.columns = static_cast<int>(g.y.w);
  for (int ky = 0; ky < g.w.h; ++ky)
    for (int kx = 0; kx < g.w.w; ++kx)
      part.taps.push_back({ky * g.dilation[0] - g.padding[0], kx * g.dilation[1] - g.padding[1],
                           ky * static_cast<int>(g.w.w) + kx});
  plan.parts.push_back(std::move(part));
  plan.Finish();
  return plan;
}

// One part for each phase of rows and columns: its outputs meet the same taps, one of every stride.
DepthwisePlan DepthwisePlan::DataGradient(const MatmulGeometry& g) {
  DepthwisePlan plan;
  plan.in = g.y, plan.out = g.x, plan.out_step = g.stride, plan.planes = static_cast<int>(g.w.c);
  for (int r = 0; r < std::min<std::int64_t>(g.stride[0], g.x.h); ++r) {
    for (int q = 0; q < std::min<std::int64_t>(g.stride[1], g.x.w); ++q) {
      Part part{r, q, QuotientUp(g.x.w - q, g.stride[1]), {}};
      for (const Reach& row : ReachesOf(g, 0, r))
        for (const Reach& column : ReachesOf(g, 1, q))
          part.taps.push_back({row.at, column.at, row.k * static_cast<int>(g.w.w) + column.k});
      plan.parts.push_back(std::move(part));
    }
  }
  plan.Finish();
  return plan;
}

// The ring has as many rows as the taps of one output row read, and zeros on both sides as far as
// any tap reaches.
void DepthwisePlan::Finish() {
  int top = 0, bottom = 0, lowest = 0, highest = static_cast<int>(in.w) - 1;
  bool any = false;
  for (const Part& part : parts) {
    for (const Tap& tap : part.taps) {
      top = any ? std::min(top, tap.row) : tap.row;
      bottom = any ? std::max(bottom, tap.row) : tap.row;
      any = true;
      lowest = std::min(lowest, tap.column);
      highest = std::max(highest, (part.columns - 1) * in_step[1] + tap.column);
    }
  }
  ring = bottom - top + 1;
  left = -lowest;
  pixels = left + highest + 1;
}

std::size_t DepthwisePlan::ring_bytes() const {
  return WholeLines(static_cast<std::size_t>(row_values() * (ring + 1)) * sizeof(float));
}

}  // namespace ada::backend::cpu
