// Ops that move values: shortcut A (subsampling with channel padding), slice, select, flatten and
// concats.
// They are exact, so nothing is rounded or counted but what concat's inputs have in other formats
// than its output; moments are taken where a policy asks.
#include <limits>
#include <vector>

#include "backend/cuda/kernels/elementwise.h"
#include "backend/cuda/ops/ops.h"
#include "backend/cuda/ops/rounding_stats.h"
#include "backend/decisions.h"
#include "core/error.h"

namespace ada::backend::cuda {
namespace {

// Values in each of so many parts of an image.
int RunOf(const Tensor& tensor, std::int64_t parts) {
  const std::int64_t run = tensor.shape.per_image() / parts;
  ADA_CHECK(run <= std::numeric_limits<std::int32_t>::max());
  return static_cast<int>(run);
}

class CudaShortcut final : public Op {
 public:
  CudaShortcut(const Context& context, const ShortcutSpec& spec)
      : spec_(spec), y_stats_(context, spec.y, {}, nullptr), dx_stats_(context, spec.dx) {
    ADA_CHECK(MovesBytes(spec));
    dx_stats_.PassScale(spec.dy);
  }
  void Forward(const Pass& pass) override {
    y_stats_.Move(pass, SpanOf(spec_.y), Of<false>(spec_.x));
  }
  void Backward(const Pass& pass) override {
    if (!spec_.dx) return;
    dx_stats_.Move(pass, SpanOf(spec_.dx.tensor), Of<true>(spec_.dy.tensor));
  }

 private:
  template <bool kGradient>
  ShortcutValue<kGradient> Of(const Tensor& from) const {
    const auto pad = static_cast<int>((spec_.y.shape.c - spec_.x.shape.c) / 2);
    const ShortcutShape shape = {ImageOf(spec_.x.shape), ImageOf(spec_.y.shape), spec_.stride[0],
                                 spec_.stride[1], pad};
    return {SpanOf(from), shape, shape.vec4()};
  }

  ShortcutSpec spec_;
  RoundingStats y_stats_, dx_stats_;
};

// A run of values of each of the `parts` parts of an image, from value `first` of the part on: of
// each pixel some channels, or of all an image has one position.
class CudaSlice final : public Op {
 public:
  CudaSlice(const Context& context, const LayerSpec& spec, std::int64_t parts, std::int64_t first)
      : spec_(spec),
        run_(RunOf(spec.y, parts)),
        whole_(RunOf(spec.x, parts)),
        first_(static_cast<int>(first)),
        y_stats_(context, spec.y, {}, nullptr),
        dx_stats_(context, spec.dx) {
    ADA_CHECK(MovesBytes(spec));
    dx_stats_.PassScale(spec.dy);
  }
  void Forward(const Pass& pass) override {
    y_stats_.Move(pass, SpanOf(spec_.y), SliceValue{SpanOf(spec_.x), whole_, first_, run_});
  }
  void Backward(const Pass& pass) override {
    if (!spec_.dx) return;
    dx_stats_.Move(pass, SpanOf(spec_.dx.tensor),
                   PlacedValue{SpanOf(spec_.dy.tensor), whole_, first_, run_});
  }

 private:
  LayerSpec spec_;
  int run_, whole_, first_;
  RoundingStats y_stats_, dx_stats_;
};

class CudaFlatten final : public Op {
 public:
  CudaFlatten(const Context& context, const FlattenSpec& spec)
      : spec_(spec), y_stats_(context, spec.y, {}, nullptr), dx_stats_(context, spec.dx) {
    ADA_CHECK(MovesBytes(spec));
    dx_stats_.PassScale(spec.dy);
  }
  void Forward(const Pass& pass) override {
    y_stats_.Move(pass, SpanOf(spec_.y), TransposedValue{SpanOf(spec_.x), Pixels(), Channels()});
  }
  void Backward(const Pass& pass) override {
    if (!spec_.dx) return;
    dx_stats_.Move(pass, SpanOf(spec_.dx.tensor),
                   TransposedValue{SpanOf(spec_.dy.tensor), Channels(), Pixels()});
  }

 private:
  int Pixels() const { return static_cast<int>(spec_.x.shape.h * spec_.x.shape.w); }
  int Channels() const { return static_cast<int>(spec_.x.shape.c); }

  FlattenSpec spec_;
  RoundingStats y_stats_, dx_stats_;
};

// An image is `times` a run of each input: by pixel its channels, or once all it has.
class CudaConcat final : public Op {
 public:
  CudaConcat(const Context& context, const ConcatSpec& spec, std::int64_t times)
      : spec_(spec), times_(times), y_stats_(context, spec.y, spec.y_style, spec.y_stats) {
    std::vector<TensorSpan> spans;
    for (const Tensor& x : spec.x) spans.push_back(SpanOf(x)), parts_.push_back(RunOf(x, times));
    joined_ = {context.Keep(spans), context.Keep(parts_), RunOf(spec.y, times)};
    for (const Gradient& dx : spec.dx) {
      ADA_CHECK(!dx || dx.tensor.storage == spec.dy.tensor.storage);
      dx_stats_.emplace_back(context, dx).PassScale(spec.dy);
    }
  }
  void Forward(const Pass& pass) override { y_stats_.Round(pass, SpanOf(spec_.y), joined_); }
  void Backward(const Pass& pass) override {
    int first = 0;
    for (std::size_t k = 0; k < spec_.dx.size(); ++k) {
      const Gradient& dx = spec_.dx[k];
      const SliceValue slice{SpanOf(spec_.dy.tensor), RunOf(spec_.y, times_), first, parts_[k]};
      if (dx) dx_stats_[k].Move(pass, SpanOf(dx.tensor), slice);
      first += parts_[k];
    }
  }

 private:
  ConcatSpec spec_;
  std::int64_t times_;
  RoundingStats y_stats_;
  std::vector<RoundingStats> dx_stats_;  // by input
  std::vector<int> parts_;               // runs by input
  JoinedValue joined_{};
};

}  // namespace

template <>
std::unique_ptr<Op> MakeOp(const Context& c, const ConcatSpec& s) {
  return std::make_unique<CudaConcat>(c, s, s.y.shape.h * s.y.shape.w);
}
template <>
std::unique_ptr<Op> MakeOp(const Context& c, const ConcatBoxesSpec& s) {
  return std::make_unique<CudaConcat>(c, s, 1);
}
template <>
std::unique_ptr<Op> MakeOp(const Context& c, const ShortcutSpec& s) {
  return std::make_unique<CudaShortcut>(c, s);
}
template <>
std::unique_ptr<Op> MakeOp(const Context& c, const SliceSpec& s) {
  return std::make_unique<CudaSlice>(c, s, s.x.shape.h * s.x.shape.w, s.first);
}
template <>
std::unique_ptr<Op> MakeOp(const Context& c, const SelectSpec& s) {
  return std::make_unique<CudaSlice>(c, s, 1, s.position * s.x.shape.c);
}
template <>
std::unique_ptr<Op> MakeOp(const Context& c, const FlattenSpec& s) {
  return std::make_unique<CudaFlatten>(c, s);
}

}  // namespace ada::backend::cuda
