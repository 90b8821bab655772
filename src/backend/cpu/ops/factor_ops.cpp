// Values times a factor of their image (stochastic depth) or of their channel (channel scale,
// affine).
#include <algorithm>
#include <cstring>

#include "backend/cpu/ops/ops.h"
#include "backend/cpu/ops/widened_blocks.h"
#include "backend/cpu/rounding/rounding_stats.h"
#include "backend/cpu/rounding/strip_totals.h"
#include "backend/decisions.h"
#include "backend/formulas.h"

namespace ada::backend::cpu {
namespace {

class CpuStochasticDepth final : public Op {
 public:
  CpuStochasticDepth(const Context& context, const StochasticDepthSpec& spec)
      : context_(context),
        spec_(spec),
        y_stats_(spec.y, spec.y_style, spec.y_stats),
        dx_stats_(spec.dx) {
    context.scratch.Reserve(BlockValues(spec.x.shape) * sizeof(float), 0);
  }
  void Forward(const Pass& pass) override {
    if (!Copies(spec_, pass))
      return Drop(pass, pass.training ? spec_.rate : 0, spec_.x, spec_.y, y_stats_);
    std::memcpy(
        spec_.y.data, spec_.x.data,
        static_cast<std::size_t>(pass.rows * spec_.x.shape.per_image()) * BytesOf(spec_.x.storage));
  }
  void Backward(const Pass& pass) override {
    if (!spec_.dx) return;
    *spec_.dx.scale = *spec_.dy.scale;
    Drop(pass, spec_.rate, spec_.dy.tensor, spec_.dx.tensor, dx_stats_);
  }

 private:
  void Drop(const Pass& pass, float rate, const Tensor& in, const Tensor& out,
            RoundingStats& stats) {
    const std::int64_t per_image = in.shape.per_image();
    RoundChanged(
        context_, pass, in, out, stats, [&](float* values, std::int64_t image, std::int64_t n) {
          for (std::int64_t i = 0; i < n; ++i) {
            const float factor = ImageFactor(pass.seed ^ spec_.stream, pass.draw,
                                             pass.first_row + image + i, rate, spec_.batch);
            float* one = values + i * per_image;
            if (factor == 0) std::fill_n(one, per_image, 0.0f);
            for (std::int64_t k = 0; k < per_image && factor > 1; ++k) one[k] *= factor;
          }
        });
  }

  Context context_;
  StochasticDepthSpec spec_;
  RoundingStats y_stats_, dx_stats_;
};

class CpuChannelScale final : public Op {
 public:
  CpuChannelScale(const Context& context, const ChannelScaleSpec& spec)
      : context_(context),
        spec_(spec),
        y_stats_(spec.y, spec.y_style, spec.y_stats),
        dx_stats_(spec.dx) {
    context.scratch.Reserve(2 * BlockValues(spec.x.shape) * sizeof(float), 0);
    if (spec.dw) totals_ = StripTotals(context, spec.x.shape);
  }
  void Forward(const Pass& pass) override {
    ForBlocks(context_, spec_.x.shape, pass.rows,
              [&](std::int64_t image, std::int64_t n, std::int64_t block, int worker) {
                Multiply(Block(spec_.x, image, n, worker, 0), spec_.y, image, n,
                         y_stats_.For(pass, block));
              });
    y_stats_.Finish(pass);
  }
  void Backward(const Pass& pass) override {
    if (spec_.dx) *spec_.dx.scale = *spec_.dy.scale;
    ForBlocks(context_, spec_.x.shape, pass.rows,
              [&](std::int64_t image, std::int64_t n, std::int64_t block, int worker) {
                float* dy = Block(spec_.dy.tensor, image, n, worker, 0);
                totals_.Add(context_, dy, Block(spec_.x, image, n, worker, 1), image, n);
                if (spec_.dx) Multiply(dy, spec_.dx.tensor, image, n, dx_stats_.For(pass, block));
              });
    totals_.Unscaled(pass.rows, *spec_.dy.scale, pass.accumulate, spec_.dw.f32());
    if (spec_.dx) dx_stats_.Finish(pass);
  }

 private:
  float* Block(const Tensor& tensor, std::int64_t image, std::int64_t n, int worker,
               std::size_t part) const {
    const Shape& shape = spec_.x.shape;
    return WidenedBlock(context_, tensor, shape, image, n * shape.per_image(), worker, part);
  }
  void Multiply(float* values, const Tensor& out, std::int64_t image, std::int64_t n,
                const Rounding& rounding) const {
    const Shape& shape = spec_.x.shape;
    context_.kernels.multiply_channels(values, spec_.w.f32(), n * shape.h * shape.w, shape.c,
                                       values);
    context_.kernels.round(values, 1.0f, At(out, image), n * shape.per_image(), rounding);
  }

  Context context_;
  ChannelScaleSpec spec_;
  RoundingStats y_stats_, dx_stats_;
  StripTotals totals_;
};

class CpuAffine final : public Op {
 public:
  CpuAffine(const Context& context, const AffineSpec& spec)
      : context_(context),
        spec_(spec),
        y_stats_(spec.y, spec.y_style, spec.y_stats),
        dx_stats_(spec.dx) {
    context.scratch.Reserve(BlockValues(spec.x.shape) * sizeof(float), 0);
  }
  void Forward(const Pass& pass) override {
    Map(pass, spec_.x, spec_.offset.f32(), spec_.y, y_stats_);
  }
  void Backward(const Pass& pass) override {
    if (!spec_.dx) return;
    *spec_.dx.scale = *spec_.dy.scale;
    Map(pass, spec_.dy.tensor, nullptr, spec_.dx.tensor, dx_stats_);
  }

 private:
  // `offset`: null for none.
  void Map(const Pass& pass, const Tensor& in, const float* offset, const Tensor& out,
           RoundingStats& stats) {
    const std::int64_t channels = in.shape.c;
    RoundChanged(context_, pass, in, out, stats, [&](float* values, std::int64_t, std::int64_t n) {
      const std::int64_t pixels = n * in.shape.per_image() / channels;
      context_.kernels.multiply_channels(values, spec_.factor.f32(), pixels, channels, values);
      for (std::int64_t p = 0; p < pixels && offset; ++p)
        for (std::int64_t c = 0; c < channels; ++c) values[p * channels + c] += offset[c];
    });
  }

  Context context_;
  AffineSpec spec_;
  RoundingStats y_stats_, dx_stats_;
};

}  // namespace

template <>
std::unique_ptr<Op> MakeOp(const Context& c, const StochasticDepthSpec& s) {
  return std::make_unique<CpuStochasticDepth>(c, s);
}
template <>
std::unique_ptr<Op> MakeOp(const Context& c, const ChannelScaleSpec& s) {
  return std::make_unique<CpuChannelScale>(c, s);
}
template <>
std::unique_ptr<Op> MakeOp(const Context& c, const AffineSpec& s) {
  return std::make_unique<CpuAffine>(c, s);
}

}  // namespace ada::backend::cpu
