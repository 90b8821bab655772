// Pooling forward and backward: each value by itself.
#include <limits>

#include "backend/cuda/kernels/pool.h"
#include "backend/cuda/ops/ops.h"
#include "backend/cuda/ops/rounding_stats.h"
#include "backend/decisions.h"
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
  if constexpr (requires { spec.adaptive; })
    grid.count_padding = spec.count_padding, grid.adaptive = spec.adaptive;
  return grid;
}

class CudaMaxPool final : public Op {
 public:
  CudaMaxPool(const Context& context, const MaxPoolSpec& spec)
      : context_(context), spec_(spec), grid_(GridOfWindows(spec)) {
    ADA_CHECK(spec.x.format == spec.y.format);
    CheckWindow(spec);
    if (!spec.dx) return;
    stats_ = RoundingStats(context, spec.dx);
    stats_.PassScale(spec.dy);
    index_ = context.Allocate<std::uint16_t>(spec.y.shape.numel());
  }
  void Forward(const Pass& pass) override {
    ForEach(context_.stream, pass.rows * spec_.y.shape.per_image(),
            MaxPoolForward{grid_, SpanOf(spec_.x), SpanOf(spec_.y), index_});
  }
  void Backward(const Pass& pass) override {
    if (!spec_.dx) return;
    stats_.Round(pass, SpanOf(spec_.dx.tensor),
                 MaxPoolGradient{grid_, SpanOf(spec_.dy.tensor), index_});
  }

 private:
  Context context_;
  MaxPoolSpec spec_;
  PoolGrid grid_;
  RoundingStats stats_;
  std::uint16_t* index_ = nullptr;  // position of the maximum in its window
};

class CudaAvgPool final : public Op {
 public:
  CudaAvgPool(const Context& context, const AvgPoolSpec& spec)
      : context_(context),
        spec_(spec),
        grid_(GridOfWindows(spec)),
        y_stats_(context, spec.y, spec.y_style, spec.y_stats),
        dx_stats_(context, spec.dx) {
    dx_stats_.PassScale(spec.dy);
  }
  void Forward(const Pass& pass) override {
    y_stats_.Round(pass, SpanOf(spec_.y), AvgPoolMean{grid_, SpanOf(spec_.x)});
  }
  void Backward(const Pass& pass) override {
    if (!spec_.dx) return;
    dx_stats_.Round(pass, SpanOf(spec_.dx.tensor), AvgPoolGradient{grid_, SpanOf(spec_.dy.tensor)});
  }

 private:
  Context context_;
  AvgPoolSpec spec_;
  PoolGrid grid_;
  RoundingStats y_stats_, dx_stats_;
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
