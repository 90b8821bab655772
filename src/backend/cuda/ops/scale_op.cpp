// The cast at a border between formats (`kind: scale`): values change their format on the way
// forward, gradients are multiplied by the layer's alpha on the way back.
#include <optional>

#include "backend/cuda/kernels/value_makers.h"
#include "backend/cuda/op_makers.h"
#include "backend/cuda/rounding/alpha_rule.h"
#include "backend/cuda/rounding/rounding_stats.h"

namespace ada::backend::cuda {
namespace {

// The op of a ScaleSpec, the cast of the paper. It has no weight, so that its rule looks at dy
// only.
class CudaScale final : public Op {
 public:
  CudaScale(const Context& context, const ScaleSpec& spec)
      : spec_(spec),
        y_stats_(context, spec.y, spec.y_style, spec.y_stats),
        dx_stats_(context, spec.dx) {
    if (!spec.dx) return;
    rule_.emplace(context, spec.scaler, spec.dy, spec.dx);
    if (context.Host(spec.scaler)->rule.reference) steps_ = GridOf(spec.dy.tensor.format);
  }
  void Forward(const Pass& pass) override {
    y_stats_.Round(pass, SpanOf(spec_.y), SameValue{SpanOf(spec_.x)});
  }
  void Backward(const Pass& pass) override {
    if (!rule_) return;
    const TensorSpan dy = SpanOf(spec_.dy.tensor);
    rule_->Decide(pass);
    // The rule looks at dy itself, which is what alpha multiplies.
    rule_->Observe(SameValue{dy}, pass.rows * spec_.dy.tensor.shape.per_image());
    dx_stats_.Round(pass, SpanOf(spec_.dx.tensor), ScaledValue{dy, rule_->alpha(), steps_});
  }

 private:
  ScaleSpec spec_;
  RoundingStats y_stats_, dx_stats_;
  NumberGrid steps_;
  std::optional<AlphaRule> rule_;
};

}  // namespace

template <>
std::unique_ptr<Op> MakeOp(const Context& c, const ScaleSpec& s) {
  return std::make_unique<CudaScale>(c, s);
}

}  // namespace ada::backend::cuda
