// The cast at a border between formats (`kind: scale`): values change their format on the way
// forward, gradients are multiplied by the layer's alpha on the way back.
#include <optional>

#include "backend/cuda/kernels/elementwise.h"
#include "backend/cuda/ops/alpha_rule.h"
#include "backend/cuda/ops/notes.h"
#include "backend/cuda/ops/ops.h"

namespace ada::backend::cuda {
namespace {

class CudaScale final : public Op {
 public:
  CudaScale(const Context& context, const ScaleSpec& spec)
      : spec_(spec),
        y_notes_(context, spec.y, spec.y_style, spec.y_stats),
        dx_notes_(context, spec.dx) {
    if (!spec.dx) return;
    rule_.emplace(context, spec.scaler, spec.dy, spec.dx);
    if (context.Host(spec.scaler)->rule.reference) steps_ = GridOf(spec.dy.tensor.format);
  }
  void Forward(const Pass& pass) override {
    y_notes_.Round(pass, PieceOf(spec_.y), SameValue{PieceOf(spec_.x)});
  }
  void Backward(const Pass& pass) override {
    if (!rule_) return;
    const TensorSpan dy = PieceOf(spec_.dy.tensor);
    rule_->Decide(pass);
    // Of dy itself, which is what alpha multiplies.
    rule_->Observe(dy, pass.rows * spec_.dy.tensor.shape.per_image());
    dx_notes_.Round(pass, PieceOf(spec_.dx.tensor), ScaledValue{dy, rule_->alpha(), steps_});
  }

 private:
  ScaleSpec spec_;
  RoundingStats y_notes_, dx_notes_;
  NumberGrid steps_;
  std::optional<AlphaRule> rule_;
};

}  // namespace

template <>
std::unique_ptr<Op> MakeOp(const Context& c, const ScaleSpec& s) {
  return std::make_unique<CudaScale>(c, s);
}

}  // namespace ada::backend::cuda
