// Ops that move values: shortcut A (subsampling with channel padding), slice, select, flatten and
// concats. They are exact, so nothing is rounded or counted but what concat's inputs have in other
// formats than its output; moments are taken where a policy asks.
#include <algorithm>
#include <cstring>
#include <vector>

#include "backend/cpu/ops/exact_gradient.h"
#include "backend/cpu/ops/ops.h"
#include "backend/cpu/rounding/blocks.h"
#include "backend/decisions.h"
#include "core/error.h"

namespace ada::backend::cpu {
namespace {

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
    InspectExact(context_, spec_.dx, stats_, pass);
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

// A run of values of each of the `parts` parts of an image, from value `first` of the part on: of
// each pixel some channels, or of all an image has one position.
class CpuSlice final : public Op {
 public:
  CpuSlice(const Context& context, const LayerSpec& spec, std::int64_t parts, std::int64_t first)
      : context_(context), spec_(spec), parts_(parts), first_(first), stats_(spec.dx) {
    ADA_CHECK(MovesBytes(spec));
  }
  void Forward(const Pass& pass) override {
    const std::size_t each = BytesOf(spec_.x.storage), run = RunOf(spec_.y) * each;
    ForBlocks(context_, spec_.y.shape, pass.rows,
              [&](std::int64_t image, std::int64_t n, std::int64_t, int) {
                for (std::size_t p = First(image); p < First(image + n); ++p)
                  std::memcpy(spec_.y.data + p * run,
                              spec_.x.data + (p * RunOf(spec_.x) + Skipped()) * each, run);
              });
  }
  void Backward(const Pass& pass) override {
    if (!spec_.dx) return;
    *spec_.dx.scale = *spec_.dy.scale;
    const Tensor &dx = spec_.dx.tensor, &dy = spec_.dy.tensor;
    const std::size_t each = BytesOf(dx.storage), whole = RunOf(dx) * each;
    const std::size_t run = RunOf(dy) * each;
    ForBlocks(context_, dx.shape, pass.rows,
              [&](std::int64_t image, std::int64_t n, std::int64_t, int) {
                for (std::size_t p = First(image); p < First(image + n); ++p) {
                  std::memset(dx.data + p * whole, 0, whole);
                  std::memcpy(dx.data + p * whole + Skipped() * each, dy.data + p * run, run);
                }
              });
    InspectExact(context_, spec_.dx, stats_, pass);
  }

 private:
  // Values in a part of a tensor.
  std::size_t RunOf(const Tensor& t) const {
    return static_cast<std::size_t>(t.shape.per_image() / parts_);
  }
  std::size_t Skipped() const { return static_cast<std::size_t>(first_); }
  // The first part of an image.
  std::size_t First(std::int64_t image) const { return static_cast<std::size_t>(image * parts_); }

  Context context_;
  LayerSpec spec_;
  std::int64_t parts_, first_;
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
    InspectExact(context_, spec_.dx, stats_, pass);
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

// An image is `parts` times a run of each input: by pixel its channels, or once all it has.
class CpuConcat final : public Op {
 public:
  CpuConcat(const Context& context, const ConcatSpec& spec, std::int64_t parts)
      : context_(context),
        spec_(spec),
        parts_(parts),
        y_stats_(spec.y, spec.y_style, spec.y_stats) {
    for (const Gradient& dx : spec.dx) {
      ADA_CHECK(!dx || dx.tensor.storage == spec.dy.tensor.storage);
      dx_stats_.emplace_back(dx);
    }
    context.scratch.Reserve(2 * BlockValues(spec.y.shape) * sizeof(float), 0);
  }
  void Forward(const Pass& pass) override {
    const Shape& shape = spec_.y.shape;
    ForBlocks(context_, shape, pass.rows,
              [&](std::int64_t image, std::int64_t n, std::int64_t block, int worker) {
                auto* all = reinterpret_cast<float*>(context_.scratch.worker(worker));
                Join(image, n * parts_, all, all + BlockValues(shape));
                context_.kernels.round(all, 1.0f, At(spec_.y, image), n * shape.per_image(),
                                       y_stats_.For(pass, block));
              });
    y_stats_.Finish(pass);
  }
  void Backward(const Pass& pass) override {
    std::int64_t first = 0;
    for (std::size_t k = 0; k < spec_.dx.size(); ++k) {
      if (spec_.dx[k]) Slice(pass, spec_.dx[k], first, dx_stats_[k]);
      first += RunOf(spec_.x[k]);
    }
  }

 private:
  // Values in a run of a tensor.
  std::int64_t RunOf(const Tensor& tensor) const { return tensor.shape.per_image() / parts_; }
  // `one`: room for the values of one input.
  void Join(std::int64_t image, std::int64_t parts, float* all, float* one) {
    for (const Tensor& x : spec_.x) {
      const std::int64_t run = RunOf(x);
      context_.kernels.widen(At(x, image), one, parts * run);
      for (std::int64_t p = 0; p < parts; ++p)
        std::copy_n(one + p * run, run, all + p * RunOf(spec_.y));
      all += run;
    }
  }
  void Slice(const Pass& pass, const Gradient& dx, std::int64_t first, RoundingStats& stats) {
    *dx.scale = *spec_.dy.scale;
    const Tensor &from = spec_.dy.tensor, &to = dx.tensor;
    const auto each = static_cast<std::int64_t>(BytesOf(from.storage));
    ForBlocks(
        context_, to.shape, pass.rows, [&](std::int64_t image, std::int64_t n, std::int64_t, int) {
          const std::int64_t run = RunOf(to);
          for (std::int64_t p = image * parts_; p < (image + n) * parts_; ++p)
            std::memcpy(to.data + p * run * each, from.data + (p * RunOf(from) + first) * each,
                        static_cast<std::size_t>(run * each));
        });
    InspectExact(context_, dx, stats, pass);
  }

  Context context_;
  ConcatSpec spec_;
  std::int64_t parts_;
  RoundingStats y_stats_;
  std::vector<RoundingStats> dx_stats_;  // by input
};

}  // namespace

template <>
std::unique_ptr<Op> MakeOp(const Context& c, const ConcatSpec& s) {
  return std::make_unique<CpuConcat>(c, s, s.y.shape.h * s.y.shape.w);
}
template <>
std::unique_ptr<Op> MakeOp(const Context& c, const ConcatBoxesSpec& s) {
  return std::make_unique<CpuConcat>(c, s, 1);
}
template <>
std::unique_ptr<Op> MakeOp(const Context& c, const ShortcutSpec& s) {
  return std::make_unique<CpuShortcut>(c, s);
}
template <>
std::unique_ptr<Op> MakeOp(const Context& c, const SliceSpec& s) {
  return std::make_unique<CpuSlice>(c, s, s.x.shape.h * s.x.shape.w, s.first);
}
template <>
std::unique_ptr<Op> MakeOp(const Context& c, const SelectSpec& s) {
  return std::make_unique<CpuSlice>(c, s, 1, s.position * s.x.shape.c);
}
template <>
std::unique_ptr<Op> MakeOp(const Context& c, const FlattenSpec& s) {
  return std::make_unique<CpuFlatten>(c, s);
}

}  // namespace ada::backend::cpu
