// What ops that compute in fp32 share: blocks of tensors in fp32, changed and rounded.
#pragma once
#include <cstdint>

#include "backend/cpu/context.h"
#include "backend/cpu/rounding/blocks.h"
#include "backend/cpu/rounding/rounding_stats.h"

namespace ada::backend::cpu {

// A block of `values` values from image `image` on as fp32, in part `part` of the worker's memory,
// of which the op has reserved several of BlockValues(shape) values each.
inline float* WidenedBlock(const Context& context, const Tensor& tensor, const Shape& shape,
                           std::int64_t image, std::int64_t values, int worker, std::size_t part) {
  auto* to = reinterpret_cast<float*>(context.scratch.worker(worker)) + part * BlockValues(shape);
  context.kernels.widen(At(tensor, image), to, values);
  return to;
}

// out = round(what change(values, image, images) leaves of the values of a block of images, widened
// to fp32), counted. Images of `in` have as many values as those of `out`, by whose blocks it goes.
template <class Change>
void RoundChanged(const Context& context, const Pass& pass, const Tensor& in, const Tensor& out,
                  RoundingStats& stats, Change&& change) {
  const Shape& shape = out.shape;
  ForBlocks(context, shape, pass.rows,
            [&](std::int64_t image, std::int64_t n, std::int64_t block, int worker) {
              const std::int64_t count = n * shape.per_image();
              float* values = WidenedBlock(context, in, shape, image, count, worker, 0);
              change(values, image, n);
              context.kernels.round(values, 1.0f, At(out, image), count, stats.For(pass, block));
            });
  stats.Finish(pass);
}

}  // namespace ada::backend::cpu
