// Embeddings: rows of a weight by token, and the sums of their gradients.
#include <cstdint>
#include <limits>
#include <optional>

#include "backend/cuda/kernels/matmul.h"
#include "backend/cuda/kernels/value_makers.h"
#include "backend/cuda/op_makers.h"
#include "backend/cuda/ops/place_order.h"
#include "backend/cuda/rounding/rounding_stats.h"
#include "backend/cuda/side_stream.h"
#include "error.h"

namespace ada::backend::cuda {
namespace {

// dw goes where those of products are made, on the side stream: one whose part this adds to
// (adds_dw) was asked for there.
class CudaEmbedding final : public Op {
 public:
  CudaEmbedding(const Context& context, const EmbeddingSpec& spec)
      : context_(context),
        spec_(spec),
        y_stats_(context, spec.y, spec.y_style, spec.y_stats),
        dw_stats_(RoundingStats::OfParameter(Side(), spec.dw_format, Storage::kF32,
                                             spec.w.shape.numel(), spec.dw_style, spec.dw_stats)) {
    // Kernels count the values of dw with 32 bits.
    ADA_CHECK(spec.w.shape.numel() <= std::numeric_limits<std::uint32_t>::max());
    if (spec.dw) order_.emplace(Side(), spec.x.shape.numel(), spec.w.shape.n);
  }
  void Forward(const Pass& pass) override {
    y_stats_.Round(pass, SpanOf(spec_.y), GatheredValue{spec_.w.f32(), Tokens(), Channels()});
  }
  void Backward(const Pass& pass) override {
    // Nothing in the backward pass waits for dw, and whoever writes dy's memory waits until it was
    // read.
    if (spec_.dw) context_.side_stream.Run({RangeOf(spec_.dy.tensor)}, [&] { SumPlaces(pass); });
  }
  void FinishGradients(const Pass& pass) override {
    if (spec_.dw) context_.side_stream.Run({}, [&] { RoundSums(pass); });
  }

 private:
  const Context& Side() const { return context_.side_stream.context(); }
  const std::int32_t* Tokens() const { return reinterpret_cast<const std::int32_t*>(spec_.x.data); }
  std::uint32_t Channels() const { return static_cast<std::uint32_t>(spec_.w.shape.c); }
  // Each value of dw is one thread's sum over the places of its token, in their order; a part of a
  // sum over processes is rounded in FinishGradients.
  void SumPlaces(const Pass& pass) {
    order_->Sort(Tokens(), pass.rows * spec_.x.shape.per_image());
    ForEach(Side().stream, spec_.w.shape.numel(),
            PlacesSum{order_->first(), order_->places(), SpanOf(spec_.dy.tensor), Channels(),
                      spec_.dy.scale, spec_.dw.f32(), pass.accumulate || spec_.adds_dw});
    if (!pass.part) RoundSums(pass);
  }
  // Rounds dw in place, or only measures it where it stays fp32.
  void RoundSums(const Pass& pass) {
    const TensorSpan dw = SpanOf(spec_.dw);
    if (dw_stats_.rounds())
      dw_stats_.Round(pass, dw, StoredValues{dw});
    else if (dw_stats_.wanted())
      dw_stats_.Count(pass, dw);
  }

  Context context_;
  EmbeddingSpec spec_;
  RoundingStats y_stats_, dw_stats_;
  std::optional<PlaceOrder> order_;  // with dw
};

}  // namespace

template <>
std::unique_ptr<Op> MakeOp(const Context& c, const EmbeddingSpec& s) {
  return std::make_unique<CudaEmbedding>(c, s);
}

}  // namespace ada::backend::cuda
