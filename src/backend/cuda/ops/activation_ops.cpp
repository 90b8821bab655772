// Functions of each value alone that are rounded (activations.h).
#include "backend/cuda/ops/ops.h"
#include "backend/cuda/ops/rounding_stats.h"

namespace ada::backend::cuda {
namespace {

// A function of x (activations.h), and what dy becomes at x.
template <class Function>
struct FunctionValue {
  ADA_HOST_DEVICE float operator()(std::int64_t i) const { return function.Value(Load(x, i)); }
  ADA_HOST_DEVICE Vec4 OfVec4(std::int64_t i) const {
    Vec4 v = LoadVec4(x, i);
    for (float& one : v.of) one = function.Value(one);
    return v;
  }

  TensorSpan x;
  Function function;
};
template <class Function>
struct DxValue {
  ADA_HOST_DEVICE float operator()(std::int64_t i) const {
    return DxOf(function, Load(x, i), Load(dy, i));
  }
  ADA_HOST_DEVICE Vec4 OfVec4(std::int64_t i) const {
    Vec4 v = LoadVec4(dy, i);
    const Vec4 at = LoadVec4(x, i);
    for (int k = 0; k < 4; ++k) v.of[k] = DxOf(function, at.of[k], v.of[k]);
    return v;
  }

  TensorSpan dy, x;
  Function function;
};

template <class Function>
class CudaActivation final : public Op {
 public:
  CudaActivation(const Context& context, const ActivationSpec<Function>& spec)
      : spec_(spec),
        y_stats_(context, spec.y, spec.y_style, spec.y_stats),
        dx_stats_(context, spec.dx) {
    dx_stats_.PassScale(spec.dy);
  }
  void Forward(const Pass& pass) override {
    y_stats_.Round(pass, SpanOf(spec_.y), FunctionValue<Function>{SpanOf(spec_.x), spec_.function});
  }
  void Backward(const Pass& pass) override {
    if (!spec_.dx) return;
    dx_stats_.Round(pass, SpanOf(spec_.dx.tensor),
                    DxValue<Function>{SpanOf(spec_.dy.tensor), SpanOf(spec_.x), spec_.function});
  }

 private:
  ActivationSpec<Function> spec_;
  RoundingStats y_stats_, dx_stats_;
};

}  // namespace

template <class Function>
std::unique_ptr<Op> MakeOp(const Context& c, const ActivationSpec<Function>& s) {
  return std::make_unique<CudaActivation<Function>>(c, s);
}
template std::unique_ptr<Op> MakeOp(const Context&, const ActivationSpec<Sigmoid>&);
template std::unique_ptr<Op> MakeOp(const Context&, const ActivationSpec<Silu>&);
template std::unique_ptr<Op> MakeOp(const Context&, const ActivationSpec<Tanh>&);
template std::unique_ptr<Op> MakeOp(const Context&, const ActivationSpec<Hardtanh>&);
template std::unique_ptr<Op> MakeOp(const Context&, const ActivationSpec<Relu6>&);
template std::unique_ptr<Op> MakeOp(const Context&, const ActivationSpec<LeakyRelu>&);
template std::unique_ptr<Op> MakeOp(const Context&, const ActivationSpec<Hardsigmoid>&);
template std::unique_ptr<Op> MakeOp(const Context&, const ActivationSpec<Hardswish>&);
template std::unique_ptr<Op> MakeOp(const Context&, const ActivationSpec<Gelu>&);
template std::unique_ptr<Op> MakeOp(const Context&, const ActivationSpec<GeluTanh>&);
template std::unique_ptr<Op> MakeOp(const Context&, const ActivationSpec<Softplus>&);
template std::unique_ptr<Op> MakeOp(const Context&, const ActivationSpec<Elu>&);

}  // namespace ada::backend::cuda
