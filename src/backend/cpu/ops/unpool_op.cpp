// Unpooling: puts values back where a pool found its maxima. Exact in both directions; moments are
// computed if a policy asks for them.
#include "backend/cpu/ops/exact_gradient.h"
#include "backend/cpu/ops/ops.h"
#include "backend/cpu/rounding/blocks.h"
#include "backend/decisions.h"
#include "error.h"

namespace ada::backend::cpu {
namespace {

// The op of a MaxUnpoolSpec. The positions belong to the pool that it undoes, whose Forward of the
// same batch has to come before Forward and Backward of this op.
class CpuMaxUnpool final : public Op {
 public:
  CpuMaxUnpool(const Context& context, const MaxUnpoolSpec& spec)
      : context_(context), spec_(spec), stats_(spec.dx) {
    ADA_CHECK(MovesBytes(spec) && spec.positions != nullptr);
  }
  // Each image of y is written whole: values of x where the pool found them, zeros elsewhere.
  void Forward(const Pass& pass) override {
    ForBlocks(context_, spec_.y.shape, pass.rows,
              [&](std::int64_t image, std::int64_t n, std::int64_t, int) {
                context_.kernels.max_unpool(Args(spec_.x, spec_.y, image, n));
              });
  }
  void Backward(const Pass& pass) override {
    if (!spec_.dx) return;
    *spec_.dx.scale = *spec_.dy.scale;
    ForBlocks(
        context_, spec_.x.shape, pass.rows,
        [&](std::int64_t image, std::int64_t n, std::int64_t, int) {
          context_.kernels.max_unpool_backward(Args(spec_.dx.tensor, spec_.dy.tensor, image, n));
        });
    InspectExact(context_, spec_.dx, stats_, pass);
  }

 private:
  // small: x or its gradient; large: y or its gradient.
  UnpoolArgs Args(const Tensor& small, const Tensor& large, std::int64_t image,
                  std::int64_t n) const {
    UnpoolArgs a;
    a.small = At(small, image), a.large = At(large, image), a.images = n;
    a.c = small.shape.c, a.small_h = small.shape.h, a.small_w = small.shape.w;
    a.pooled_h = spec_.pooled.h, a.pooled_w = spec_.pooled.w;
    a.large_h = large.shape.h, a.large_w = large.shape.w;
    a.kernel_h = spec_.kernel[0], a.kernel_w = spec_.kernel[1];
    a.stride_h = spec_.stride[0], a.stride_w = spec_.stride[1];
    a.pad_h = spec_.padding[0], a.pad_w = spec_.padding[1];
    a.positions = spec_.positions + image * spec_.pooled.per_image();
    return a;
  }

  Context context_;
  MaxUnpoolSpec spec_;
  RoundingStats stats_;
};

}  // namespace

template <>
std::unique_ptr<Op> MakeOp(const Context& c, const MaxUnpoolSpec& s) {
  return std::make_unique<CpuMaxUnpool>(c, s);
}

}  // namespace ada::backend::cpu
