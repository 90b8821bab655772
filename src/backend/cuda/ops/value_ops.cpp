// Layers that are defined once for all backends (backend/values/layer_values.h), and products of
// two tensors.
#include <type_traits>

#include "backend/cuda/context.h"
#include "backend/cuda/kernels/strip_sums.h"
#include "backend/cuda/kernels/values.h"
#include "backend/cuda/rounding/rounding_stats.h"
#include "backend/cuda/rounding/row_chain.h"
#include "backend/decisions.h"
#include "backend/values/all.h"
#include "error.h"

namespace ada::backend::cuda {

namespace {

// Layers that record the largest magnitude of dy where a product before them left it
// (LayerKind::takes_amax_of_dy).
template <class Spec>
constexpr bool TakesAmaxOfDy() {
  return IsOneOf<Spec, DropoutSpec, ActivationSpec<Gelu>, ActivationSpec<GeluTanh>>;
}

// The op of one kind of layer of values/: the formula is the maker's, and a thread runs it for each
// value of the output. What a maker only moves is not rounded.
template <class Spec>
class CudaValueOp final : public Op {
  using Layer = LayerValues<Spec>;

 public:
  CudaValueOp(const Context& context, const Spec& spec)
      : context_(context),
        spec_(spec),
        y_stats_(context, spec.y, StyleOfY(spec), StatsOfY(spec)),
        dx_stats_(context, spec.dx),
        strips_{spec.x.shape.h * spec.x.shape.w} {
    ADA_CHECK(MovesWithinFormats(spec));
    dx_stats_.PassScale(spec.dy);
    if constexpr (TakesAmaxOfDy<Spec>()) dy_stats_ = RoundingStats::OfLeft(context, spec.dy);
    if constexpr (HasTable<Spec>) table_ = context.Keep(Layer::Table(spec));
    if constexpr (HasSum<Spec>)
      if (spec.dw)
        sums_ = context.Allocate<float>(spec.x.shape.n * strips_.per_image() * spec.x.shape.c);
  }
  void Forward(const Pass& pass) override {
    if constexpr (TakesRowChain<Spec>())
      if (IsInChain(pass)) return;
    // Dropout in evaluation is a copy of the bytes where no format changes, and is not counted.
    if constexpr (requires { spec_.rate; })
      if (Copies(spec_, pass))
        return context_.stream.Copy(
            spec_.y.data, spec_.x.data,
            static_cast<std::size_t>(pass.rows * spec_.x.shape.per_image()) *
                BytesOf(spec_.x.storage));
    Make(pass, y_stats_, spec_.x, YOf(spec_, pass, table_), spec_.y);
  }
  void Backward(const Pass& pass) override {
    if constexpr (HasSum<Spec>)
      if (spec_.dw) {
        // Gradients of parameters come first, because dx may overwrite dy.
        const auto term = Of(pass, spec_.dy.tensor, Layer::Dw(spec_));
        SumTerms(context_.stream, pass, strips_, spec_.x.shape.c, SumsByChannel(spec_), term, sums_,
                 spec_.dy.scale, spec_.dw);
      }
    if constexpr (HasImageSums<Spec>)
      if (spec_.dw)
        ForEach(
            context_.stream, spec_.w.shape.numel(),
            ImagesSum{SpanOf(spec_.dy.tensor), pass.rows, spec_.y.shape.per_image(),
                      Layer::ImageSums(spec_), spec_.dy.scale, spec_.dw.f32(), pass.accumulate});
    if constexpr (TakesAmaxOfDy<Spec>())
      if (dy_stats_.RecordsLeft(pass)) return RecordDy(pass);
    if (!spec_.dx) return;
    // Values that stay in the same memory need no copy, so only the scale is passed on.
    if (spec_.dx.tensor.data == spec_.dy.tensor.data && Moves<MakerOfDx<Spec>>() &&
        !dx_stats_.wanted())
      ForEach(context_.stream, 1, PassScaleOn{spec_.dy.scale, spec_.dx.scale});
    else
      Make(pass, dx_stats_, spec_.dy.tensor, DxOf(spec_, table_), spec_.dx.tensor);
  }

 private:
  // Whether y is made with what the op before or after this one rounds (row_chain.h).
  bool IsInChain(const Pass& pass) {
    RowChain& chain = context_.row_chain;
    const auto value = Of(pass, spec_.x, YOf(spec_, pass, table_));
    if constexpr (!std::is_same_v<Spec, DropoutSpec>)
      return chain.End(pass, y_stats_, spec_.x, spec_.y, value);
    else if (!Copies(spec_, pass))
      return chain.Leave(pass, y_stats_, spec_.x, spec_.y, value);
    chain.Launch();
    return false;
  }
  // A Value for RoundingStats; random numbers go by the first value, or image, of the whole batch
  // of all processes.
  template <class Maker>
  MadeValue<Maker> Of(const Pass& pass, const Tensor& in, const Maker& maker) const {
    // Makers that are random by value count values, those that are random by image count images.
    const std::int64_t each = IsRandom<Maker>() ? in.shape.per_image() : 1;
    return {maker, SpanOf(in), SpanOf(spec_.x), context_.pass, pass.first_row * each};
  }
  template <class Maker>
  void Make(const Pass& pass, const RoundingStats& stats, const Tensor& in, const Maker& maker,
            const Tensor& out) const {
    if constexpr (Moves<Maker>())
      stats.Move(pass, SpanOf(out), Of(pass, in, maker));
    else
      stats.Round(pass, SpanOf(out), Of(pass, in, maker));
  }
  // dx, and before it dy's largest magnitude by the same blocks, which may overwrite it then.
  void RecordDy(const Pass& pass) const {
    const TensorSpan dy = SpanOf(spec_.dy.tensor);
    if (!spec_.dx || !context_.stream.switches().fused) dy_stats_.CountLeft(pass, dy);
    if (!spec_.dx) return;
    const auto value = Of(pass, spec_.dy.tensor, DxOf(spec_, table_));
    if (!context_.stream.switches().fused)
      return dx_stats_.Round(pass, SpanOf(spec_.dx.tensor), value);
    int same_blocks = 0;
    const auto left = dy_stats_.LeftKernel(pass, dy, same_blocks);
    dx_stats_.RoundWith(
        pass, SpanOf(spec_.dx.tensor), value, 0, [&](const auto& kernel, auto level, int blocks) {
          using Dx = std::decay_t<decltype(kernel)>;
          if constexpr (level() == StatsLevel::kCounts) {
            dy_stats_.CountLeft(pass, dy);
            dx_stats_.LaunchAndDecide(kernel, level, blocks);
          } else {
            ADA_CHECK(blocks == same_blocks);
            dx_stats_.LaunchAndDecide(FusedPhases<std::decay_t<decltype(left)>, Dx>{left, kernel},
                                      level, blocks);
          }
        });
  }

  Context context_;
  Spec spec_;
  RoundingStats y_stats_, dx_stats_, dy_stats_;
  Strips strips_;
  float* sums_ = nullptr;  // of strips, with dw
  const float* table_ = nullptr;
};

}  // namespace

std::unique_ptr<Op> MakeValueOp(const Context& context, const OpSpec& spec) {
  return MakeOpOfValues<CudaValueOp>(context, spec);
}

// --- Products of two tensors ---

namespace {

// The op of a MultiplySpec. An input of one value a channel, the gate, is spread over the pixels of
// its image; where both inputs have one shape there is none. The gate's gradient is a sum over
// strips.
class CudaMultiply final : public Op {
 public:
  CudaMultiply(const Context& context, const MultiplySpec& spec)
      : context_(context),
        spec_(spec),
        gate_(spec.x[0].shape == spec.x[1].shape ? -1
              : spec.x[0].shape == spec.y.shape  ? 1
                                                 : 0),
        strips_{spec.y.shape.h * spec.y.shape.w},
        y_stats_(context, spec.y, spec.y_style, spec.y_stats) {
    spec_.dx.resize(2);
    for (std::size_t k = 0; k < 2; ++k) {
      dx_stats_[k] = RoundingStats(context, spec_.dx[k]);
      dx_stats_[k].PassScale(spec.dy);
    }
    if (gate_ < 0 || !spec_.dx[static_cast<std::size_t>(gate_)]) return;
    sums_ = context.Allocate<float>(spec.y.shape.n * strips_.per_image() * spec.y.shape.c);
  }
  void Forward(const Pass& pass) override {
    // Where both shapes are equal the second input takes the gate's part.
    const std::size_t second = gate_ == 0 ? 0 : 1;
    y_stats_.Round(pass, SpanOf(spec_.y), Product(spec_.x[1 - second], second));
  }
  void Backward(const Pass& pass) override {
    for (std::size_t k = 0; k < 2; ++k) {
      if (!spec_.dx[k]) continue;
      const TensorSpan dx = SpanOf(spec_.dx[k].tensor);
      if (static_cast<int>(k) != gate_) {
        dx_stats_[k].Round(pass, dx, Product(spec_.dy.tensor, 1 - k));
        continue;
      }
      const std::int64_t channels = spec_.y.shape.c;
      const StripSums<ProductTerm> sums = {
          strips_, channels, sums_, {SpanOf(spec_.dy.tensor), SpanOf(spec_.x[1 - k])}};
      ForEach(context_.stream, sums.Count(pass.rows), sums);
      dx_stats_[k].Round(pass, dx, ImageSum{sums_, strips_.per_image(), channels});
    }
  }

 private:
  // a * input `other`; a has the shape of y.
  ProductValue Product(const Tensor& a, std::size_t other) const {
    const Shape& shape = spec_.y.shape;
    return {SpanOf(a), SpanOf(spec_.x[other]), static_cast<int>(other) == gate_,
            static_cast<std::uint32_t>(shape.per_image()), static_cast<std::uint32_t>(shape.c)};
  }

  Context context_;
  MultiplySpec spec_;
  int gate_;  // the input of one value a channel; -1: none
  Strips strips_;
  RoundingStats y_stats_, dx_stats_[2];
  float* sums_ = nullptr;
};

}  // namespace

template <>
std::unique_ptr<Op> MakeOp(const Context& c, const MultiplySpec& s) {
  return std::make_unique<CudaMultiply>(c, s);
}

}  // namespace ada::backend::cuda
