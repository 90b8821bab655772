// Values times a trained slope of their channel, or of all, where they are not positive.
#include "backend/cpu/ops/ops.h"
#include "backend/cpu/ops/widened_blocks.h"
#include "backend/cpu/rounding/rounding_stats.h"
#include "backend/cpu/rounding/strip_totals.h"

namespace ada::backend::cpu {
namespace {

class CpuPrelu final : public Op {
 public:
  CpuPrelu(const Context& context, const PreluSpec& spec)
      : context_(context),
        spec_(spec),
        y_stats_(spec.y, spec.y_style, spec.y_stats),
        dx_stats_(spec.dx) {
    context.scratch.Reserve(3 * BlockValues(spec.x.shape) * sizeof(float), 0);
    if (spec.dw) totals_ = StripTotals(context, spec.x.shape);
  }
  void Forward(const Pass& pass) override {
    RoundChanged(context_, pass, spec_.x, spec_.y, y_stats_,
                 [&](float* x, std::int64_t, std::int64_t n) { Multiply(x, x, n); });
  }
  void Backward(const Pass& pass) override {
    if (spec_.dx) *spec_.dx.scale = *spec_.dy.scale;
    ForBlocks(context_, spec_.x.shape, pass.rows,
              [&](std::int64_t image, std::int64_t n, std::int64_t block, int worker) {
                float* dy = Block(spec_.dy.tensor, image, n, worker, 0);
                const float* x = Block(spec_.x, image, n, worker, 1);
                AddTerms(dy, x, image, n, worker);
                if (!spec_.dx) return;
                Multiply(dy, x, n);
                context_.kernels.round(dy, 1.0f, At(spec_.dx.tensor, image),
                                       n * spec_.x.shape.per_image(), dx_stats_.For(pass, block));
              });
    if (spec_.dw) StoreSum(pass);
    if (spec_.dx) dx_stats_.Finish(pass);
  }

 private:
  bool of_channels() const { return spec_.w.shape.c > 1; }
  float* Block(const Tensor& tensor, std::int64_t image, std::int64_t n, int worker,
               std::size_t part) const {
    const Shape& shape = spec_.x.shape;
    return WidenedBlock(context_, tensor, shape, image, n * shape.per_image(), worker, part);
  }
  // Values of `n` images, where x is not positive, times the slope.
  void Multiply(float* values, const float* x, std::int64_t n) const {
    const std::int64_t channels = spec_.x.shape.c, count = n * spec_.x.shape.per_image();
    const float* w = spec_.w.f32();
    if (!of_channels()) {
      const float slope = w[0];
      for (std::int64_t i = 0; i < count; ++i) values[i] = x[i] > 0 ? values[i] : values[i] * slope;
      return;
    }
    for (std::int64_t i = 0; i < count; i += channels)
      for (std::int64_t c = 0; c < channels; ++c)
        values[i + c] = x[i + c] > 0 ? values[i + c] : values[i + c] * w[c];
  }
  // The sums of dy * x over what is not positive.
  void AddTerms(const float* dy, const float* x, std::int64_t image, std::int64_t n, int worker) {
    if (!spec_.dw) return;
    float* below =
        reinterpret_cast<float*>(context_.scratch.worker(worker)) + 2 * BlockValues(spec_.x.shape);
    for (std::int64_t i = 0; i < n * spec_.x.shape.per_image(); ++i)
      below[i] = x[i] > 0 ? 0.0f : dy[i] * x[i];
    totals_.Add(context_, below, nullptr, image, n);
  }
  void StoreSum(const Pass& pass) {
    if (of_channels())
      totals_.Unscaled(pass.rows, *spec_.dy.scale, pass.accumulate, spec_.dw.f32());
    else
      totals_.UnscaledOfAll(pass.rows, *spec_.dy.scale, pass.accumulate, spec_.dw.f32());
  }

  Context context_;
  PreluSpec spec_;
  RoundingStats y_stats_, dx_stats_;
  StripTotals totals_;
};

}  // namespace

template <>
std::unique_ptr<Op> MakeOp(const Context& c, const PreluSpec& s) {
  return std::make_unique<CpuPrelu>(c, s);
}

}  // namespace ada::backend::cpu
