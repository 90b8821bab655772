// A gradient whose values are those of another: nothing is rounded, moments are taken where they
// are wanted.
#pragma once
#include "backend/cpu/rounding/blocks.h"
#include "backend/cpu/rounding/rounding_stats.h"

namespace ada::backend::cpu {

// Computes what `stats` asks for from the first pass.rows images of a gradient that is stored
// already; ops that move values call it at their end. Nothing is read if nothing is asked for.
inline void InspectExact(const Context& context, const Gradient& g, RoundingStats& stats,
                         const Pass& pass) {
  if (!stats.wanted()) return;
  const Shape& shape = g.tensor.shape;
  ForBlocks(
      context, shape, pass.rows, [&](std::int64_t image, std::int64_t n, std::int64_t block, int) {
        context.kernels.inspect(At(g.tensor, image), n * shape.per_image(), stats.For(pass, block));
      });
  stats.Finish(pass);
}

}  // namespace ada::backend::cpu
