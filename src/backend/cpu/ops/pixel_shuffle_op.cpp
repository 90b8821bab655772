// Pixel shuffle: blocks of channels become blocks of pixels, and their gradients blocks of channels
// again. Values are moved as they are stored; moments are taken where a policy asks.
#include <cstdint>

#include "backend/cpu/ops/exact_gradient.h"
#include "backend/cpu/ops/ops.h"
#include "backend/cpu/rounding/blocks.h"
#include "backend/decisions.h"
#include "core/error.h"

namespace ada::backend::cpu {
namespace {

class CpuPixelShuffle final : public Op {
 public:
  CpuPixelShuffle(const Context& context, const PixelShuffleSpec& spec)
      : context_(context), spec_(spec), stats_(spec.dx) {
    ADA_CHECK(MovesBytes(spec));
  }
  void Forward(const Pass& pass) override { Move<false>(pass, spec_.x, spec_.y); }
  void Backward(const Pass& pass) override {
    if (!spec_.dx) return;
    *spec_.dx.scale = *spec_.dy.scale;
    Move<true>(pass, spec_.dx.tensor, spec_.dy.tensor);
    InspectExact(context_, spec_.dx, stats_, pass);
  }

 private:
  // From `coarse`, which has x's shape, to `fine`, which has y's; kBack: from `fine` to `coarse`.
  template <bool kBack>
  void Move(const Pass& pass, const Tensor& coarse, const Tensor& fine) {
    if (BytesOf(coarse.storage) == sizeof(std::uint16_t))
      MoveValues<std::uint16_t, kBack>(pass, coarse, fine);
    else
      MoveValues<std::uint32_t, kBack>(pass, coarse, fine);
  }
  template <class Value, bool kBack>
  void MoveValues(const Pass& pass, const Tensor& coarse, const Tensor& fine) {
    const Shape &x = coarse.shape, &y = fine.shape;
    const std::int64_t r = spec_.scale;
    context_.pool.For(pass.rows * y.h, [&](std::int64_t line, int) {
      const std::int64_t image = line / y.h, h = line % y.h;
      auto* to = reinterpret_cast<Value*>(fine.data) + line * y.w * y.c;
      Value* row = reinterpret_cast<Value*>(coarse.data) + (image * x.h + h / r) * x.w * x.c;
      for (std::int64_t w = 0; w < y.w; ++w, to += y.c) {
        Value* from = row + w / r * x.c + h % r * r + w % r;
        for (std::int64_t c = 0; c < y.c; ++c)
          kBack ? from[c * r * r] = to[c] : to[c] = from[c * r * r];
      }
    });
  }

  Context context_;
  PixelShuffleSpec spec_;
  RoundingStats stats_;
};

}  // namespace

template <>
std::unique_ptr<Op> MakeOp(const Context& c, const PixelShuffleSpec& s) {
  return std::make_unique<CpuPixelShuffle>(c, s);
}

}  // namespace ada::backend::cpu
