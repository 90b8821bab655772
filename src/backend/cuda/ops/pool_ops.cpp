// Pooling forward and backward: each value by itself.
#include <limits>
#include <string>

#include "backend/cuda/kernels/pool.h"
#include "backend/cuda/ops/notes.h"
#include "backend/cuda/ops/ops.h"
#include "core/error.h"

namespace ada::backend::cuda {
namespace {

template <class Spec>
PoolGrid GridOfWindows(const Spec& spec) {
  const Shape &x = spec.x.shape, &y = spec.y.shape;
  ADA_CHECK(x.per_image() <= std::numeric_limits<std::int32_t>::max());
  const auto whole = [](std::int64_t size) { return static_cast<int>(size); };
  PoolGrid grid;
  grid.h = whole(x.h), grid.w = whole(x.w), grid.c = whole(x.c);
  grid.out_h = whole(y.h), grid.out_w = whole(y.w);
  grid.kernel_h = spec.kernel[0], grid.kernel_w = spec.kernel[1];
  grid.stride_h = spec.stride[0], grid.stride_w = spec.stride[1];
  grid.pad_h = spec.padding[0], grid.pad_w = spec.padding[1];
  return grid;
}

class CudaMaxPool final : public Op {
 public:
  CudaMaxPool(const Context& context, const MaxPoolSpec& spec)
      : context_(context), spec_(spec), grid_(GridOfWindows(spec)) {
    ADA_CHECK(spec.x.format == spec.y.format);
    if (std::int64_t{spec.kernel[0]} * spec.kernel[1] > std::numeric_limits<std::uint16_t>::max())
      throw ConfigError("max_pool: a kernel of " + std::to_string(spec.kernel[0]) + "x" +
                        std::to_string(spec.kernel[1]) + " has more than 65535 positions");
    if (!spec.dx) return;
    notes_ = RoundingStats(context, spec.dx);
    notes_.PassScale(spec.dy);
    index_ = context.Allocate<std::uint16_t>(spec.y.shape.numel());
  }
  void Forward(const Pass& pass) override {
    ForEach(context_.stream, pass.rows * spec_.y.shape.per_image(),
            MaxPoolForward{grid_, PieceOf(spec_.x), PieceOf(spec_.y), index_});
  }
  void Backward(const Pass& pass) override {
    if (!spec_.dx) return;
    notes_.Round(pass, PieceOf(spec_.dx.tensor),
                 MaxPoolGradient{grid_, PieceOf(spec_.dy.tensor), index_});
  }

 private:
  Context context_;
  MaxPoolSpec spec_;
  PoolGrid grid_;
  RoundingStats notes_;
  std::uint16_t* index_ = nullptr;  // position of the maximum in its window
};

class CudaAvgPool final : public Op {
 public:
  CudaAvgPool(const Context& context, const AvgPoolSpec& spec)
      : context_(context),
        spec_(spec),
        grid_(GridOfWindows(spec)),
        y_notes_(context, spec.y, spec.y_style, spec.y_stats),
        dx_notes_(context, spec.dx) {
    dx_notes_.PassScale(spec.dy);
  }
  void Forward(const Pass& pass) override {
    y_notes_.Round(pass, PieceOf(spec_.y), AvgPoolMean{grid_, PieceOf(spec_.x)});
  }
  void Backward(const Pass& pass) override {
    if (!spec_.dx) return;
    dx_notes_.Round(pass, PieceOf(spec_.dx.tensor),
                    AvgPoolGradient{grid_, PieceOf(spec_.dy.tensor)});
  }

 private:
  Context context_;
  AvgPoolSpec spec_;
  PoolGrid grid_;
  RoundingStats y_notes_, dx_notes_;
};

}  // namespace

template <>
std::unique_ptr<Op> MakeOp(const Context& context, const MaxPoolSpec& spec) {
  return std::make_unique<CudaMaxPool>(context, spec);
}
template <>
std::unique_ptr<Op> MakeOp(const Context& context, const AvgPoolSpec& spec) {
  return std::make_unique<CudaAvgPool>(context, spec);
}

}  // namespace ada::backend::cuda
