// Local response normalization: a pixel's channels by those beside them.
#include "backend/cpu/ops/ops.h"
#include "backend/cpu/ops/widened_blocks.h"
#include "backend/cpu/rounding/rounding_stats.h"
#include "backend/decisions.h"

namespace ada::backend::cpu {
namespace {

// The op of an LrnSpec (Krizhevsky et al. 2012), computed by the lrn kernels in fp32 on blocks of
// images and rounded once each way. Nothing is kept from Forward: Backward computes the windows'
// sums of squares again from x.
class CpuLrn final : public Op {
 public:
  CpuLrn(const Context& context, const LrnSpec& spec)
      : context_(context),
        spec_(spec),
        y_stats_(spec.y, spec.y_style, spec.y_stats),
        dx_stats_(spec.dx) {
    context.scratch.Reserve(2 * BlockValues(spec.x.shape) * sizeof(float) + WorkBytes(), 0);
  }
  void Forward(const Pass& pass) override { Run(pass, spec_.y, y_stats_, /*backward=*/false); }
  void Backward(const Pass& pass) override {
    if (!spec_.dx) return;
    *spec_.dx.scale = *spec_.dy.scale;
    Run(pass, spec_.dx.tensor, dx_stats_, /*backward=*/true);
  }

 private:
  // What the kernels need for one group of pixels: 64 doubles a channel (LrnArgs::work).
  std::size_t WorkBytes() const {
    return 64 * static_cast<std::size_t>(spec_.x.shape.c) * sizeof(double);
  }
  // Both ways in one: out = round(what the kernel makes of x and, backward, of dy).
  void Run(const Pass& pass, const Tensor& out, RoundingStats& stats, bool backward) {
    const Shape& shape = spec_.x.shape;
    ForBlocks(context_, shape, pass.rows,
              [&](std::int64_t image, std::int64_t n, std::int64_t block, int worker) {
                const std::int64_t values = n * shape.per_image();
                float* x = WidenedBlock(context_, spec_.x, shape, image, values, worker, 0);
                LrnArgs a;
                a.x = a.out = x, a.pixels = n * shape.h * shape.w, a.channels = shape.c;
                a.size = spec_.size, a.factors = FactorsOf(spec_);
                a.work = reinterpret_cast<double*>(x + 2 * BlockValues(shape));
                if (backward) {
                  a.dy = WidenedBlock(context_, spec_.dy.tensor, shape, image, values, worker, 1);
                  context_.kernels.lrn_backward(a);
                } else {
                  context_.kernels.lrn(a);
                }
                context_.kernels.round(x, 1.0f, At(out, image), values, stats.For(pass, block));
              });
    stats.Finish(pass);
  }

  Context context_;
  LrnSpec spec_;
  RoundingStats y_stats_, dx_stats_;
};

}  // namespace

template <>
std::unique_ptr<Op> MakeOp(const Context& c, const LrnSpec& s) {
  return std::make_unique<CpuLrn>(c, s);
}

}  // namespace ada::backend::cpu
