// The product of two tensors, one of which may have one value a channel for all pixels of an image.
#include <vector>

#include "backend/cpu/ops/ops.h"
#include "backend/cpu/ops/widened_blocks.h"
#include "backend/cpu/rounding/rounding_stats.h"
#include "backend/cpu/rounding/strip_totals.h"

namespace ada::backend::cpu {
namespace {

// The op of a MultiplySpec. An input of one value a channel, the gate, is spread over the pixels of
// its image; where both inputs have one shape there is none. Both gradients carry dy's scale.
class CpuMultiply final : public Op {
 public:
  CpuMultiply(const Context& context, const MultiplySpec& spec)
      : context_(context),
        spec_(spec),
        gate_(spec.x[0].shape == spec.x[1].shape ? -1
              : spec.x[0].shape == spec.y.shape  ? 1
                                                 : 0),
        y_stats_(spec.y, spec.y_style, spec.y_stats) {
    spec_.dx.resize(2);
    for (std::size_t k = 0; k < 2; ++k) dx_stats_[k] = RoundingStats(spec_.dx[k]);
    context.scratch.Reserve(2 * BlockValues(spec.y.shape) * sizeof(float), 0);
    if (gate_ < 0 || !spec_.dx[static_cast<std::size_t>(gate_)]) return;
    totals_ = StripTotals(context, spec.y.shape);
    // The gate's gradient is gathered in fp32 for the whole batch: its blocks hold more images than
    // those of y, and rounding goes by them.
    gate_gradient_.resize(static_cast<std::size_t>(gate_tensor().shape.numel()));
  }
  void Forward(const Pass& pass) override {
    // Where both shapes are equal the second input takes the gate's part.
    const std::size_t second = gate_ == 0 ? 0 : 1;
    Product(pass, spec_.x[1 - second], second, spec_.y, y_stats_);
  }
  void Backward(const Pass& pass) override {
    for (std::size_t k = 0; k < 2; ++k) {
      if (!spec_.dx[k]) continue;
      *spec_.dx[k].scale = *spec_.dy.scale;
      if (static_cast<int>(k) == gate_)
        ReduceGate(pass, k);
      else
        // The gradient of one input is dy times the other one.
        Product(pass, spec_.dy.tensor, 1 - k, spec_.dx[k].tensor, dx_stats_[k]);
    }
  }

 private:
  const Tensor& gate_tensor() const { return spec_.x[static_cast<std::size_t>(gate_)]; }
  float* Block(const Tensor& tensor, std::int64_t image, std::int64_t n, int worker,
               std::size_t part) const {
    return WidenedBlock(context_, tensor, spec_.y.shape, image, n * tensor.shape.per_image(),
                        worker, part);
  }
  // out = round(a * input `other`); a has the shape of y.
  void Product(const Pass& pass, const Tensor& a, std::size_t other, const Tensor& out,
               RoundingStats& stats) {
    const Shape& shape = spec_.y.shape;
    ForBlocks(context_, shape, pass.rows,
              [&](std::int64_t image, std::int64_t n, std::int64_t block, int worker) {
                float* values = Block(a, image, n, worker, 0);
                const float* by = Block(spec_.x[other], image, n, worker, 1);
                if (static_cast<int>(other) != gate_)
                  context_.kernels.multiply(values, by, values, n * shape.per_image());
                else
                  for (std::int64_t i = 0; i < n; ++i)
                    context_.kernels.multiply_channels(values + i * shape.per_image(),
                                                       by + i * shape.c, shape.h * shape.w, shape.c,
                                                       values + i * shape.per_image());
                context_.kernels.round(values, 1.0f, At(out, image), n * shape.per_image(),
                                       stats.For(pass, block));
              });
    stats.Finish(pass);
  }
  // The gate's gradient: sums of dy * the other input, image by image.
  void ReduceGate(const Pass& pass, std::size_t gate) {
    const Shape& small = gate_tensor().shape;
    ForBlocks(context_, spec_.y.shape, pass.rows,
              [&](std::int64_t image, std::int64_t n, std::int64_t, int worker) {
                const float* dy = Block(spec_.dy.tensor, image, n, worker, 0);
                const float* x = Block(spec_.x[1 - gate], image, n, worker, 1);
                totals_.Add(context_, dy, x, image, n);
              });
    for (std::int64_t image = 0; image < pass.rows; ++image) {
      // Strips of an image in double, then fp32, so that rounding to the format is from fp32 as
      // everywhere.
      const std::vector<double>& sums = totals_.Of(image, 1);
      for (std::int64_t c = 0; c < small.c; ++c)
        gate_gradient_[static_cast<std::size_t>(image * small.c + c)] =
            static_cast<float>(sums[static_cast<std::size_t>(c)]);
    }
    ForBlocks(context_, small, pass.rows,
              [&](std::int64_t image, std::int64_t n, std::int64_t block, int) {
                context_.kernels.round(gate_gradient_.data() + image * small.c, 1.0f,
                                       At(spec_.dx[gate].tensor, image), n * small.c,
                                       dx_stats_[gate].For(pass, block));
              });
    dx_stats_[gate].Finish(pass);
  }

  Context context_;
  MultiplySpec spec_;
  int gate_;  // the input of one value a channel; -1: none
  RoundingStats y_stats_, dx_stats_[2];
  StripTotals totals_;
  std::vector<float> gate_gradient_;
};

}  // namespace

template <>
std::unique_ptr<Op> MakeOp(const Context& c, const MultiplySpec& s) {
  return std::make_unique<CpuMultiply>(c, s);
}

}  // namespace ada::backend::cpu
