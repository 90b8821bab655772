// Concatenations, of channels and of boxes. Nothing is rounded or counted but what inputs have in
// other formats than the output; moments are taken where a policy asks.
#include <limits>
#include <vector>

#include "backend/cuda/kernels/made_values.h"
#include "backend/cuda/kernels/value_makers.h"
#include "backend/cuda/op_makers.h"
#include "backend/cuda/rounding/rounding_stats.h"
#include "backend/values/moves.h"
#include "error.h"

namespace ada::backend::cuda {
namespace {

// The number of values in each of `parts` parts of an image.
int RunOf(const Tensor& tensor, std::int64_t parts) {
  const std::int64_t run = tensor.shape.per_image() / parts;
  ADA_CHECK(run <= std::numeric_limits<std::int32_t>::max());
  return static_cast<int>(run);
}

// An image is `times` a run of each input: by pixel its channels, or once all it has.
class CudaConcat final : public Op {
 public:
  CudaConcat(const Context& context, const ConcatSpec& spec, std::int64_t times)
      : spec_(spec), times_(times), y_stats_(context, spec.y, spec.y_style, spec.y_stats) {
    std::vector<TensorSpan> spans;
    for (const Tensor& x : spec.x) spans.push_back(SpanOf(x)), parts_.push_back(RunOf(x, times));
    joined_ = {context.Keep(spans), context.Keep(parts_), RunOf(spec.y, times)};
    for (const Gradient& dx : spec.dx) {
      // Slices of dy are moved as they are stored, with dy's scale.
      ADA_CHECK(!dx || dx.tensor.storage == spec.dy.tensor.storage);
      dx_stats_.emplace_back(context, dx).PassScale(spec.dy);
    }
  }
  // One launch reads all inputs; each value of the output finds which input it comes from.
  void Forward(const Pass& pass) override { y_stats_.Round(pass, SpanOf(spec_.y), joined_); }
  void Backward(const Pass& pass) override {
    std::int64_t first = 0;
    for (std::size_t k = 0; k < spec_.dx.size(); ++k) {
      const Gradient& dx = spec_.dx[k];
      if (dx) {
        const PartOfRuns part = PartOf(spec_.y.shape, dx.tensor.shape, times_, first);
        dx_stats_[k].Move(pass, SpanOf(dx.tensor), Moved(part, spec_.dy.tensor));
      }
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

}  // namespace ada::backend::cuda
