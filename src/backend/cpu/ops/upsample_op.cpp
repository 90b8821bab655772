// Nearest upsampling: rows of pixels are copied; the gradient of a pixel is the sum over its
// copies.
#include <algorithm>
#include <cstring>

#include "backend/cpu/ops/ops.h"
#include "backend/cpu/rounding/blocks.h"
#include "backend/cpu/rounding/rounding_stats.h"
#include "core/error.h"

namespace ada::backend::cpu {
namespace {

class CpuUpsample final : public Op {
 public:
  CpuUpsample(const Context& context, const UpsampleSpec& spec)
      : context_(context), spec_(spec), dx_stats_(spec.dx) {
    ADA_CHECK(spec.x.format == spec.y.format && spec.x.storage == spec.y.storage);
    if (!spec.dx) return;
    // Part 0: the block's dx; after it: dy of one image.
    const std::size_t values =
        BlockValues(spec.x.shape) + static_cast<std::size_t>(spec.y.shape.per_image());
    context.scratch.Reserve(values * sizeof(float), 0);
  }
  void Forward(const Pass& pass) override {
    const Shape &x = spec_.x.shape, &y = spec_.y.shape;
    const std::size_t pixel = static_cast<std::size_t>(x.c) * BytesOf(x_storage());
    const std::size_t row = static_cast<std::size_t>(y.w) * pixel;
    ForBlocks(context_, x, pass.rows, [&](std::int64_t image, std::int64_t n, std::int64_t, int) {
      const std::byte* from = spec_.x.data + static_cast<std::size_t>(image * x.h * x.w) * pixel;
      std::byte* to = spec_.y.data + static_cast<std::size_t>(image * y.h) * row;
      for (std::int64_t line = 0; line < n * x.h; ++line) {
        const std::byte* first = to;
        for (std::int64_t w = 0; w < x.w; ++w, from += pixel)
          for (int k = 0; k < spec_.scale; ++k, to += pixel) std::memcpy(to, from, pixel);
        for (int k = 1; k < spec_.scale; ++k, to += row) std::memcpy(to, first, row);
      }
    });
  }
  void Backward(const Pass& pass) override {
    if (!spec_.dx) return;
    *spec_.dx.scale = *spec_.dy.scale;
    const Shape &x = spec_.x.shape, &y = spec_.y.shape;
    ForBlocks(context_, x, pass.rows,
              [&](std::int64_t image, std::int64_t n, std::int64_t block, int worker) {
                auto* dx = reinterpret_cast<float*>(context_.scratch.worker(worker));
                float* dy = dx + BlockValues(x);
                std::fill_n(dx, n * x.per_image(), 0.0f);
                for (std::int64_t i = 0; i < n; ++i) {
                  context_.kernels.widen(At(spec_.dy.tensor, image + i), dy, y.per_image());
                  Gather(dy, dx + i * x.per_image());
                }
                context_.kernels.round(dx, 1.0f, At(spec_.dx.tensor, image), n * x.per_image(),
                                       dx_stats_.For(pass, block));
              });
    dx_stats_.Finish(pass);
  }

 private:
  Storage x_storage() const { return spec_.x.storage; }
  // Adds the copies of each pixel of one image, row by row.
  void Gather(const float* dy, float* dx) const {
    const Shape &x = spec_.x.shape, &y = spec_.y.shape;
    for (std::int64_t h = 0; h < y.h; ++h)
      for (std::int64_t w = 0; w < y.w; ++w)
        context_.kernels.accumulate(dy + (h * y.w + w) * y.c,
                                    dx + (h / spec_.scale * x.w + w / spec_.scale) * x.c, x.c);
  }

  Context context_;
  UpsampleSpec spec_;
  RoundingStats dx_stats_;
};

}  // namespace

template <>
std::unique_ptr<Op> MakeOp(const Context& c, const UpsampleSpec& s) {
  return std::make_unique<CpuUpsample>(c, s);
}

}  // namespace ada::backend::cpu
