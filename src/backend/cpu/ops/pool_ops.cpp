// Max and average pooling.
#include <vector>

#include "backend/cpu/ops/ops.h"
#include "backend/cpu/rounding/blocks.h"
#include "backend/cpu/rounding/rounding_stats.h"
#include "backend/decisions.h"
#include "error.h"

namespace ada::backend::cpu {
namespace {

// The window of a pooling in the form that its kernels need, for this many images. Adaptive windows
// and counted padding exist only in average pooling.
template <class Spec>
PoolArgs Geometry(const Spec& spec, std::int64_t images) {
  PoolArgs a;
  const Shape &x = spec.x.shape, &y = spec.y.shape;
  a.images = images, a.h = x.h, a.w = x.w, a.c = x.c, a.out_h = y.h, a.out_w = y.w;
  a.kernel_h = spec.kernel[0], a.kernel_w = spec.kernel[1];
  a.stride_h = spec.stride[0], a.stride_w = spec.stride[1];
  a.pad_h = spec.padding[0], a.pad_w = spec.padding[1];
  if constexpr (requires { spec.adaptive; })
    a.count_padding = spec.count_padding, a.adaptive = spec.adaptive;
  return a;
}
std::size_t ImageBytes(const Shape& shape) {
  return static_cast<std::size_t>(shape.per_image()) * sizeof(float);
}

// The op of a MaxPoolSpec. Positions of maxima are kept only where something reads them: Backward,
// or an unpooling that goes with this pool. Forward moves values, so x and y have one format.
class CpuMaxPool final : public Op {
 public:
  CpuMaxPool(const Context& context, const MaxPoolSpec& spec)
      : context_(context), spec_(spec), stats_(spec.dx) {
    ADA_CHECK(spec.x.format == spec.y.format);
    CheckWindow(spec);
    index_ = spec.positions;
    // Without an unpooling the op owns the positions, 16 bits for each value of y.
    if (index_ == nullptr && spec.dx) {
      own_index_.resize(static_cast<std::size_t>(spec.y.shape.numel()));
      index_ = own_index_.data();
    }
    // Backward adds up one image in fp32 at a time, since windows may overlap.
    if (spec.dx) context_.scratch.Reserve(ImageBytes(spec.x.shape), 0);
  }
  void Forward(const Pass& pass) override {
    ForBlocks(context_, spec_.x.shape, pass.rows,
              [&](std::int64_t image, std::int64_t n, std::int64_t, int) {
                PoolArgs a = Geometry(spec_, n);
                a.x = At(spec_.x, image), a.y = At(spec_.y, image);
                if (index_ != nullptr) a.index = index_ + image * spec_.y.shape.per_image();
                context_.kernels.max_pool(a);
              });
  }
  void Backward(const Pass& pass) override {
    if (!spec_.dx) return;
    // dx is linear in dy and carries its scale.
    *spec_.dx.scale = *spec_.dy.scale;
    ForBlocks(context_, spec_.x.shape, pass.rows,
              [&](std::int64_t image, std::int64_t n, std::int64_t block, int worker) {
                PoolArgs a = Geometry(spec_, n);
                // Backwards x and y stand for their gradients.
                a.x = At(spec_.dx.tensor, image), a.y = At(spec_.dy.tensor, image);
                a.index = index_ + image * spec_.y.shape.per_image();
                a.work = reinterpret_cast<float*>(context_.scratch.worker(worker));
                a.rounding = stats_.For(pass, block);
                context_.kernels.max_pool_backward(a);
              });
    stats_.Finish(pass);
  }

 private:
  using Index = std::uint16_t;
  Context context_;
  MaxPoolSpec spec_;
  RoundingStats stats_;
  std::vector<Index, PageAllocator<Index>> own_index_;
  Index* index_ = nullptr;  // position of the maximum in its window; null: not needed
};

// The op of an AvgPoolSpec, adaptive or not. Both ways compute values in fp32 and round them once.
class CpuAvgPool final : public Op {
 public:
  CpuAvgPool(const Context& context, const AvgPoolSpec& spec)
      : context_(context),
        spec_(spec),
        // Blocks are those of x, which has more values than y: the loop is one over both.
        y_stats_(spec.y, spec.y_style, spec.y_stats, nullptr, BlockImages(spec.x.shape)),
        dx_stats_(spec.dx) {
    if (spec.dx) context_.scratch.Reserve(ImageBytes(spec.x.shape), 0);
  }
  void Forward(const Pass& pass) override {
    ForBlocks(context_, spec_.x.shape, pass.rows,
              [&](std::int64_t image, std::int64_t n, std::int64_t block, int) {
                PoolArgs a = Geometry(spec_, n);
                a.x = At(spec_.x, image), a.y = At(spec_.y, image);
                a.rounding = y_stats_.For(pass, block);
                context_.kernels.avg_pool(a);
              });
    y_stats_.Finish(pass);
  }
  void Backward(const Pass& pass) override {
    if (!spec_.dx) return;
    *spec_.dx.scale = *spec_.dy.scale;
    ForBlocks(context_, spec_.x.shape, pass.rows,
              [&](std::int64_t image, std::int64_t n, std::int64_t block, int worker) {
                PoolArgs a = Geometry(spec_, n);
                a.x = At(spec_.dx.tensor, image), a.y = At(spec_.dy.tensor, image);
                a.work = reinterpret_cast<float*>(context_.scratch.worker(worker));
                a.rounding = dx_stats_.For(pass, block);
                context_.kernels.avg_pool_backward(a);
              });
    dx_stats_.Finish(pass);
  }

 private:
  Context context_;
  AvgPoolSpec spec_;
  RoundingStats y_stats_, dx_stats_;
};

}  // namespace

template <>
std::unique_ptr<Op> MakeOp(const Context& c, const MaxPoolSpec& s) {
  return std::make_unique<CpuMaxPool>(c, s);
}
template <>
std::unique_ptr<Op> MakeOp(const Context& c, const AvgPoolSpec& s) {
  return std::make_unique<CpuAvgPool>(c, s);
}

}  // namespace ada::backend::cpu
