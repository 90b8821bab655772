// Softmax of each position's channels.
#include <cmath>

#include "backend/cpu/ops/ops.h"
#include "backend/cpu/ops/widened_blocks.h"
#include "backend/cpu/rounding/rounding_stats.h"
#include "backend/elementary.h"

namespace ada::backend::cpu {
namespace {

// The op of a SoftmaxSpec. Backward computes the probabilities anew from x, since y may be rounded,
// and sums of p * dy are taken in double.
class CpuSoftmax final : public Op {
 public:
  CpuSoftmax(const Context& context, const SoftmaxSpec& spec)
      : context_(context),
        spec_(spec),
        y_stats_(spec.y, spec.y_style, spec.y_stats),
        dx_stats_(spec.dx) {
    // A worker holds a block of x and, backward, one of dy, which becomes dx.
    context.scratch.Reserve(2 * BlockValues(spec.y.shape) * sizeof(float), 0);
  }
  void Forward(const Pass& pass) override {
    const Shape& shape = spec_.y.shape;
    RoundChanged(context_, pass, spec_.x, spec_.y, y_stats_,
                 [&](float* z, std::int64_t, std::int64_t n) {
                   for (std::int64_t i = 0; i < n * shape.per_image(); i += shape.c)
                     Normalize(z + i);
                 });
  }
  void Backward(const Pass& pass) override {
    if (!spec_.dx) return;
    *spec_.dx.scale = *spec_.dy.scale;
    const Shape& shape = spec_.y.shape;
    ForBlocks(context_, shape, pass.rows,
              [&](std::int64_t image, std::int64_t n, std::int64_t block, int worker) {
                const std::int64_t count = n * shape.per_image();
                float* z = WidenedBlock(context_, spec_.x, shape, image, count, worker, 0);
                float* dy = WidenedBlock(context_, spec_.dy.tensor, shape, image, count, worker, 1);
                // dx = p (dy - sum of p dy) of each position.
                for (std::int64_t i = 0; i < count; i += shape.c) {
                  float *p = z + i, *g = dy + i;
                  Normalize(p);
                  double sum = 0;
                  for (std::int64_t c = 0; c < shape.c; ++c)
                    sum += static_cast<double>(p[c]) * static_cast<double>(g[c]);
                  for (std::int64_t c = 0; c < shape.c; ++c)
                    g[c] = static_cast<float>(static_cast<double>(p[c]) *
                                              (static_cast<double>(g[c]) - sum));
                }
                context_.kernels.round(dy, 1.0f, At(spec_.dx.tensor, image), count,
                                       dx_stats_.For(pass, block));
              });
    dx_stats_.Finish(pass);
  }

 private:
  // A NaN makes its whole position NaN.
  // The comparison passes over a NaN in the maximum; its exponential then makes the sum NaN.
  void Normalize(float* z) const {
    const std::int64_t channels = spec_.y.shape.c;
    float highest = -HUGE_VALF;
    for (std::int64_t c = 0; c < channels; ++c) highest = z[c] > highest ? z[c] : highest;
    const auto top = static_cast<double>(highest);
    double sum = 0;
    for (std::int64_t c = 0; c < channels; ++c) sum += Exponential(static_cast<double>(z[c]) - top);
    for (std::int64_t c = 0; c < channels; ++c)
      z[c] = static_cast<float>(Exponential(static_cast<double>(z[c]) - top) / sum);
  }

  Context context_;
  SoftmaxSpec spec_;
  RoundingStats y_stats_, dx_stats_;
};

}  // namespace

template <>
std::unique_ptr<Op> MakeOp(const Context& c, const SoftmaxSpec& s) {
  return std::make_unique<CpuSoftmax>(c, s);
}

}  // namespace ada::backend::cpu
