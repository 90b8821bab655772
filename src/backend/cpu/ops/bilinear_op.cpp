// Bilinear upsampling: each place is a mean of four pixels, the gradient of a pixel the sum over
// the places that it has a part in.
#include <algorithm>
#include <vector>

#include "backend/cpu/ops/ops.h"
#include "backend/cpu/rounding/blocks.h"
#include "backend/cpu/rounding/rounding_stats.h"
#include "backend/interpolation.h"

namespace ada::backend::cpu {
namespace {

std::vector<BetweenPixels> PlacesOf(const InterpolatedAxis& axis) {
  std::vector<BetweenPixels> places;
  for (std::int64_t o = 0; o < axis.out; ++o) places.push_back(axis.At(o));
  return places;
}

class CpuBilinear final : public Op {
 public:
  CpuBilinear(const Context& context, const BilinearSpec& spec)
      : context_(context),
        spec_(spec),
        rows_(PlacesOf({spec.x.shape.h, spec.y.shape.h, spec.align_corners})),
        columns_(PlacesOf({spec.x.shape.w, spec.y.shape.w, spec.align_corners})),
        y_stats_(spec.y, spec.y_style, spec.y_stats),
        dx_stats_(spec.dx) {
    // For the forward pass a block of y and an image of x, of the backward pass the other way
    // round.
    const auto x = static_cast<std::size_t>(spec.x.shape.per_image());
    const auto y = static_cast<std::size_t>(spec.y.shape.per_image());
    const std::size_t values =
        std::max(BlockValues(spec.y.shape) + x, BlockValues(spec.x.shape) + y);
    context.scratch.Reserve(values * sizeof(float), 0);
  }
  void Forward(const Pass& pass) override {
    Run(pass, spec_.x, spec_.y, y_stats_, [this](const float* x, float* y) { Interpolate(x, y); });
  }
  void Backward(const Pass& pass) override {
    if (!spec_.dx) return;
    *spec_.dx.scale = *spec_.dy.scale;
    Run(pass, spec_.dy.tensor, spec_.dx.tensor, dx_stats_,
        [this](const float* dy, float* dx) { Spread(dy, dx); });
  }

 private:
  // out = round(what make(from, to) writes of each image), by the blocks of `out`.
  template <class Make>
  void Run(const Pass& pass, const Tensor& in, const Tensor& out, RoundingStats& stats,
           Make&& make) {
    const std::int64_t in_values = in.shape.per_image(), out_values = out.shape.per_image();
    ForBlocks(context_, out.shape, pass.rows,
              [&](std::int64_t image, std::int64_t n, std::int64_t block, int worker) {
                auto* to = reinterpret_cast<float*>(context_.scratch.worker(worker));
                float* from = to + BlockValues(out.shape);
                for (std::int64_t i = 0; i < n; ++i) {
                  context_.kernels.widen(At(in, image + i), from, in_values);
                  make(from, to + i * out_values);
                }
                context_.kernels.round(to, 1.0f, At(out, image), n * out_values,
                                       stats.For(pass, block));
              });
    stats.Finish(pass);
  }

  void Interpolate(const float* x, float* y) const {
    const std::int64_t channels = spec_.x.shape.c, row = spec_.x.shape.w * channels;
    for (const BetweenPixels& v : rows_) {
      const float* top = x + v.at * row;
      const float* bottom = v.above == 0 ? top : top + row;
      for (const BetweenPixels& h : columns_) {
        const std::int64_t left = h.at * channels, right = h.above == 0 ? left : left + channels;
        for (std::int64_t c = 0; c < channels; ++c)
          y[c] = Between(v, Between(h, top[left + c], top[right + c]),
                         Between(h, bottom[left + c], bottom[right + c]));
        y += channels;
      }
    }
  }

  void Spread(const float* dy, float* dx) const {
    const std::int64_t channels = spec_.x.shape.c, row = spec_.x.shape.w * channels;
    std::fill_n(dx, spec_.x.shape.per_image(), 0.0f);
    for (const BetweenPixels& v : rows_)
      for (const BetweenPixels& h : columns_) {
        float* at = dx + v.at * row + h.at * channels;
        Add(dy, v.below * h.below, at);
        Add(dy, v.below * h.above, at + channels);
        Add(dy, v.above * h.below, at + row);
        Add(dy, v.above * h.above, at + row + channels);
        dy += channels;
      }
  }
  // Nothing where there is no share: `dx` may lie outside.
  void Add(const float* dy, float share, float* dx) const {
    if (share == 0) return;
    for (std::int64_t c = 0; c < spec_.x.shape.c; ++c) dx[c] += dy[c] * share;
  }

  Context context_;
  BilinearSpec spec_;
  std::vector<BetweenPixels> rows_, columns_;  // by row, column of y
  RoundingStats y_stats_, dx_stats_;
};

}  // namespace

template <>
std::unique_ptr<Op> MakeOp(const Context& c, const BilinearSpec& s) {
  return std::make_unique<CpuBilinear>(c, s);
}

}  // namespace ada::backend::cpu
