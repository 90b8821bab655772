// Ops that move values: shortcut A (subsampling with channel padding), slice, flatten and concats.
// They are exact, so nothing is rounded or counted but what concat's inputs have in other formats
// than its output; moments are taken where a policy asks.
#include <algorithm>
#include <cstring>
#include <vector>

#include "backend/cpu/ops/blocks.h"
#include "backend/cpu/ops/exact_gradient.h"
#include "backend/cpu/ops/ops.h"
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

// Some channels of every pixel.
class CpuSlice final : public Op {
 public:
  CpuSlice(const Context& context, const SliceSpec& spec)
      : context_(context), spec_(spec), stats_(spec.dx) {
    ADA_CHECK(MovesBytes(spec));
  }
  void Forward(const Pass& pass) override {
    const std::size_t each = BytesOf(spec_.x.storage), row = Channels(spec_.y) * each;
    ForBlocks(context_, spec_.y.shape, pass.rows,
              [&](std::int64_t image, std::int64_t n, std::int64_t, int) {
                for (std::size_t p = First(image); p < First(image + n); ++p)
                  std::memcpy(spec_.y.data + p * row,
                              spec_.x.data + (p * Channels(spec_.x) + Skipped()) * each, row);
              });
  }
  void Backward(const Pass& pass) override {
    if (!spec_.dx) return;
    *spec_.dx.scale = *spec_.dy.scale;
    const Tensor &dx = spec_.dx.tensor, &dy = spec_.dy.tensor;
    const std::size_t each = BytesOf(dx.storage), row = Channels(dx) * each;
    const std::size_t part = Channels(dy) * each;
    ForBlocks(context_, dx.shape, pass.rows,
              [&](std::int64_t image, std::int64_t n, std::int64_t, int) {
                for (std::size_t p = First(image); p < First(image + n); ++p) {
                  std::memset(dx.data + p * row, 0, row);
                  std::memcpy(dx.data + p * row + Skipped() * each, dy.data + p * part, part);
                }
              });
    InspectExact(context_, spec_.dx, stats_, pass);
  }

 private:
  static std::size_t Channels(const Tensor& t) { return static_cast<std::size_t>(t.shape.c); }
  std::size_t Skipped() const { return static_cast<std::size_t>(spec_.first); }
  // The first pixel of an image.
  std::size_t First(std::int64_t image) const {
    return static_cast<std::size_t>(image * spec_.x.shape.h * spec_.x.shape.w);
  }

  Context context_;
  SliceSpec spec_;
  RoundingStats stats_;
};

// One position of every image.
class CpuSelect final : public Op {
 public:
  CpuSelect(const Context& context, const SelectSpec& spec)
      : context_(context), spec_(spec), stats_(spec.dx) {
    ADA_CHECK(MovesBytes(spec));
  }
  void Forward(const Pass& pass) override {
    const std::size_t row = Row(spec_.y), image = Bytes(spec_.x);
    for (std::size_t i = 0; i < static_cast<std::size_t>(pass.rows); ++i)
      std::memcpy(spec_.y.data + i * row, spec_.x.data + i * image + Skipped(row), row);
  }
  void Backward(const Pass& pass) override {
    if (!spec_.dx) return;
    *spec_.dx.scale = *spec_.dy.scale;
    const Tensor &dx = spec_.dx.tensor, &dy = spec_.dy.tensor;
    const std::size_t row = Row(dy), image = Bytes(dx);
    context_.pool.For(pass.rows, [&](std::int64_t i, int) {
      const auto at = static_cast<std::size_t>(i);
      std::memset(dx.data + at * image, 0, image);
      std::memcpy(dx.data + at * image + Skipped(row), dy.data + at * row, row);
    });
    InspectExact(context_, spec_.dx, stats_, pass);
  }

 private:
  static std::size_t Bytes(const Tensor& t) {  // of an image
    return static_cast<std::size_t>(t.shape.per_image()) * BytesOf(t.storage);
  }
  static std::size_t Row(const Tensor& t) {
    return static_cast<std::size_t>(t.shape.c) * BytesOf(t.storage);
  }
  std::size_t Skipped(std::size_t row) const {
    return static_cast<std::size_t>(spec_.position) * row;
  }

  Context context_;
  SelectSpec spec_;
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
  return std::make_unique<CpuSlice>(c, s);
}
template <>
std::unique_ptr<Op> MakeOp(const Context& c, const SelectSpec& s) {
  return std::make_unique<CpuSelect>(c, s);
}
template <>
std::unique_ptr<Op> MakeOp(const Context& c, const FlattenSpec& s) {
  return std::make_unique<CpuFlatten>(c, s);
}

}  // namespace ada::backend::cpu
