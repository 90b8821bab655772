// Ops that move values without changing them: shortcut A (subsampling with channel padding) and
// flatten. Exact, so nothing is rounded or counted; moments are taken where a policy asks.
#include <cstring>

#include "backend/cpu/ops/blocks.h"
#include "backend/cpu/ops/ops.h"
#include "backend/cpu/ops/rounding_stats.h"
#include "backend/decisions.h"
#include "core/error.h"

namespace ada::backend::cpu {
namespace {

// Takes the moments of an exact gradient, where they are wanted.
void Inspect(const Context& context, const Gradient& g, RoundingStats& stats, const Pass& pass) {
  if (!stats.wanted()) return;
  const Shape& shape = g.tensor.shape;
  ForBlocks(
      context, shape, pass.rows, [&](std::int64_t image, std::int64_t n, std::int64_t block, int) {
        context.kernels.inspect(At(g.tensor, image), n * shape.per_image(), stats.For(pass, block));
      });
  stats.Finish(pass);
}

class CpuShortcut final : public Op {
 public:
  CpuShortcut(const Context& context, const ShortcutSpec& spec)
      : context_(context), spec_(spec), stats_(spec.dx) {
    ADA_CHECK(MovesBytes(spec));
  }
  void Forward(const Pass& pass) override {
    const Shape& out = spec_.y.shape;
    ForBlocks(context_, out, pass.rows, [&](std::int64_t image, std::int64_t n, std::int64_t, int) {
      std::memset(spec_.y.data + Offset(spec_.y, image, 0, 0), 0,
                  static_cast<std::size_t>(n * out.per_image()) * BytesOf(spec_.y.storage));
      for (std::int64_t i = image; i < image + n; ++i)
        for (std::int64_t h = 0; h < out.h; ++h)
          for (std::int64_t w = 0; w < out.w; ++w)
            std::memcpy(spec_.y.data + Offset(spec_.y, i, h, w) + Pad(spec_.y),
                        spec_.x.data + Offset(spec_.x, i, h * spec_.stride[0], w * spec_.stride[1]),
                        Row(spec_.x));
    });
  }
  void Backward(const Pass& pass) override {
    if (!spec_.dx) return;
    *spec_.dx.scale = *spec_.dy.scale;
    const Shape& in = spec_.x.shape;
    ForBlocks(context_, in, pass.rows, [&](std::int64_t image, std::int64_t n, std::int64_t, int) {
      std::memset(spec_.dx.tensor.data + Offset(spec_.dx.tensor, image, 0, 0), 0,
                  static_cast<std::size_t>(n * in.per_image()) * BytesOf(spec_.dx.tensor.storage));
      for (std::int64_t i = image; i < image + n; ++i)
        for (std::int64_t h = 0; h < spec_.y.shape.h; ++h)
          for (std::int64_t w = 0; w < spec_.y.shape.w; ++w)
            std::memcpy(
                spec_.dx.tensor.data +
                    Offset(spec_.dx.tensor, i, h * spec_.stride[0], w * spec_.stride[1]),
                spec_.dy.tensor.data + Offset(spec_.dy.tensor, i, h, w) + Pad(spec_.dy.tensor),
                Row(spec_.dx.tensor));
    });
    Inspect(context_, spec_.dx, stats_, pass);
  }

 private:
  static std::size_t Offset(const Tensor& t, std::int64_t i, std::int64_t h, std::int64_t w) {
    return static_cast<std::size_t>(((i * t.shape.h + h) * t.shape.w + w) * t.shape.c) *
           BytesOf(t.storage);
  }
  // Bytes of the channels of x, and of those before them in y: half of the new ones.
  std::size_t Row(const Tensor& t) const {
    return static_cast<std::size_t>(spec_.x.shape.c) * BytesOf(t.storage);
  }
  std::size_t Pad(const Tensor& t) const {
    return static_cast<std::size_t>((spec_.y.shape.c - spec_.x.shape.c) / 2) * BytesOf(t.storage);
  }

  Context context_;
  ShortcutSpec spec_;
  RoundingStats stats_;
};

// [pixels, c] <-> [c, pixels] of one image.
template <class T>
void Transpose(const T* in, std::int64_t rows, std::int64_t columns, T* out) {
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c) out[c * rows + r] = in[r * columns + c];
}

class CpuFlatten final : public Op {
 public:
  CpuFlatten(const Context& context, const FlattenSpec& spec)
      : context_(context), spec_(spec), stats_(spec.dx) {
    ADA_CHECK(MovesBytes(spec));
  }
  void Forward(const Pass& pass) override {
    Move(pass, spec_.x, spec_.y, Pixels(), spec_.x.shape.c);
  }
  void Backward(const Pass& pass) override {
    if (!spec_.dx) return;
    *spec_.dx.scale = *spec_.dy.scale;
    Move(pass, spec_.dy.tensor, spec_.dx.tensor, spec_.x.shape.c, Pixels());
    Inspect(context_, spec_.dx, stats_, pass);
  }

 private:
  std::int64_t Pixels() const { return spec_.x.shape.h * spec_.x.shape.w; }
  void Move(const Pass& pass, const Tensor& from, const Tensor& to, std::int64_t rows,
            std::int64_t columns) {
    ForBlocks(context_, from.shape, pass.rows,
              [&](std::int64_t image, std::int64_t n, std::int64_t, int) {
                for (std::int64_t i = image; i < image + n; ++i) {
                  const TensorSpan in = At(from, i), out = At(to, i);
                  if (BytesOf(in.storage) == 4)
                    Transpose(static_cast<const std::uint32_t*>(in.data), rows, columns,
                              static_cast<std::uint32_t*>(out.data));
                  else
                    Transpose(static_cast<const std::uint16_t*>(in.data), rows, columns,
                              static_cast<std::uint16_t*>(out.data));
                }
              });
  }

  Context context_;
  FlattenSpec spec_;
  RoundingStats stats_;
};

}  // namespace

template <>
std::unique_ptr<Op> MakeOp(const Context& c, const ShortcutSpec& s) {
  return std::make_unique<CpuShortcut>(c, s);
}
template <>
std::unique_ptr<Op> MakeOp(const Context& c, const FlattenSpec& s) {
  return std::make_unique<CpuFlatten>(c, s);
}

}  // namespace ada::backend::cpu
