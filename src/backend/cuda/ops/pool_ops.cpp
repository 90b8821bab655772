// Pooling and unpooling forward and backward: each value by itself.
#include <limits>

#include "backend/cuda/context.h"
#include "backend/cuda/kernels/pool.h"
#include "backend/cuda/rounding/rounding_stats.h"
#include "backend/decisions.h"
#include "error.h"

namespace ada::backend::cuda {
namespace {

// The window of a pooling as kernels take it; an image's values are counted with 32 bits.
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

// The op of a MaxPoolSpec. Positions of maxima are kept only where something reads them: Backward,
// or an unpooling that goes with this pool.
class CudaMaxPool final : public Op {
 public:
  CudaMaxPool(const Context& context, const MaxPoolSpec& spec)
      : context_(context), spec_(spec), grid_(GridOfWindows(spec)) {
    ADA_CHECK(spec.x.format == spec.y.format);
    CheckWindow(spec);
    index_ = spec.positions;
    if (!spec.dx) return;
    stats_ = RoundingStats(context, spec.dx);
    stats_.PassScale(spec.dy);
    if (index_ == nullptr) index_ = context.Allocate<std::uint16_t>(spec.y.shape.numel());
  }
  void Forward(const Pass& pass) override {
    const TensorSpan x = SpanOf(spec_.x), y = SpanOf(spec_.y);
    const std::int64_t values = pass.rows * spec_.y.shape.per_image();
    // Eight channels a thread where x, y and positions can be read and written 16 bytes at a time;
    // else a value a thread. Both give the same values and positions.
    const bool by_vec8 = context_.stream.switches().plain && CountsVec8() && HasVec8(x) &&
                         HasVec8(y) && x.storage == y.storage && IsOnSixteen(index_);
    if (by_vec8)
      return x.storage == Storage::kF16 ? ByVec8<StorageType::kF16>(values)
                                        : ByVec8<StorageType::kBF16>(values);
    ForEach(context_.stream, values, MaxPoolForward{grid_, x, y, index_});
  }
  void Backward(const Pass& pass) override {
    if (!spec_.dx) return;
    const TensorSpan dx = SpanOf(spec_.dx.tensor);
    // The windows of common networks have kernels of their own, in which loops over them are
    // unrolled.
    if (HasWindows(3, 2) && stats_.RoundPlainly(pass, dx, Value<3, 2>())) return;
    if (HasWindows(2, 2) && stats_.RoundPlainly(pass, dx, Value<2, 2>())) return;
    stats_.Round(pass, dx, Value<0, 0>());
  }

 private:
  // Whether channels come in groups of eight, and 32 bits count the values of y.
  bool CountsVec8() const {
    return grid_.c % 8 == 0 &&
           spec_.y.shape.numel() <= std::int64_t{std::numeric_limits<std::uint32_t>::max()};
  }
  template <StorageType kStorageType>
  void ByVec8(std::int64_t values) {
    ForEach(context_.stream, values / 8,
            MaxPoolVec8<kStorageType>{grid_, SpanOf(spec_.x), SpanOf(spec_.y), index_});
  }
  // Whether windows and strides are square and of these sizes.
  bool HasWindows(int kernel, int stride) const {
    return grid_.kernel_h == kernel && grid_.kernel_w == kernel && grid_.stride_h == stride &&
           grid_.stride_w == stride;
  }
  // The gradient as a Value of RoundingStats; 0, 0: for windows of all sizes.
  template <int kKernel, int kStride>
  MaxPoolGradient<kKernel, kStride> Value() const {
    return {grid_, SpanOf(spec_.dy.tensor), index_, CountsVec8()};
  }

  Context context_;
  MaxPoolSpec spec_;
  PoolGrid grid_;
  RoundingStats stats_;
  std::uint16_t* index_ = nullptr;  // position of the maximum in its window; null: not needed
};

// The op of a MaxUnpoolSpec. The positions belong to the pool that it undoes, whose Forward of the
// same batch has to come before both ways of this op. Values are moved, not rounded.
class CudaMaxUnpool final : public Op {
 public:
  CudaMaxUnpool(const Context& context, const MaxUnpoolSpec& spec)
      : spec_(spec), y_stats_(context, spec.y, {}, nullptr), dx_stats_(context, spec.dx) {
    ADA_CHECK(MovesBytes(spec) && spec.positions != nullptr);
    grid_ = {ImageOf(spec.x.shape), ImageOf(spec.pooled), ImageOf(spec.y.shape),
             spec.kernel[0],        spec.kernel[1],       spec.stride[0],
             spec.stride[1],        spec.padding[0],      spec.padding[1]};
    dx_stats_.PassScale(spec.dy);
  }
  void Forward(const Pass& pass) override {
    y_stats_.Move(pass, SpanOf(spec_.y), MaxUnpoolValue{grid_, SpanOf(spec_.x), spec_.positions});
  }
  void Backward(const Pass& pass) override {
    if (!spec_.dx) return;
    dx_stats_.Move(pass, SpanOf(spec_.dx.tensor),
                   MaxUnpoolGradient{grid_, SpanOf(spec_.dy.tensor), spec_.positions});
  }

 private:
  // How an image of a tensor lies, in 32 bits.
  static UnpoolImage ImageOf(const Shape& shape) {
    ADA_CHECK(shape.per_image() <= std::numeric_limits<std::int32_t>::max());
    return {static_cast<int>(shape.h), static_cast<int>(shape.w), static_cast<int>(shape.c)};
  }

  MaxUnpoolSpec spec_;
  UnpoolGrid grid_{};
  RoundingStats y_stats_, dx_stats_;
};

// The op of an AvgPoolSpec, adaptive or not; each value of y or dx is one thread's sum.
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
std::unique_ptr<Op> MakeOp(const Context& context, const MaxUnpoolSpec& spec) {
  return std::make_unique<CudaMaxUnpool>(context, spec);
}
template <>
std::unique_ptr<Op> MakeOp(const Context& context, const AvgPoolSpec& spec) {
  return std::make_unique<CudaAvgPool>(context, spec);
}

}  // namespace ada::backend::cuda
