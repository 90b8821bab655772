// Functions of each value alone that are rounded (activations.h): sigmoid, silu.
#include "backend/activations.h"
#include "backend/cuda/ops/ops.h"
#include "backend/cuda/ops/rounding_stats.h"

namespace ada::backend::cuda {
namespace {

// A function of x (activations.h), and dy times its slope at x.
template <class Function>
struct FunctionValue {
  ADA_HOST_DEVICE float operator()(std::int64_t i) const { return Function::Value(Load(x, i)); }
  ADA_HOST_DEVICE FourFloats Four(std::int64_t i) const {
    FourFloats v = LoadFour(x, i);
    for (float& one : v.of) one = Function::Value(one);
    return v;
  }

  TensorSpan x;
};
template <class Function>
struct SlopeValue {
  ADA_HOST_DEVICE float operator()(std::int64_t i) const {
    return Load(dy, i) * Function::Slope(Load(x, i));
  }
  ADA_HOST_DEVICE FourFloats Four(std::int64_t i) const {
    FourFloats v = LoadFour(dy, i);
    const FourFloats at = LoadFour(x, i);
    for (int k = 0; k < 4; ++k) v.of[k] = v.of[k] * Function::Slope(at.of[k]);
    return v;
  }

  TensorSpan dy, x;
};

template <class Function>
class CudaActivation final : public Op {
 public:
  CudaActivation(const Context& context, const RoundedLayerSpec& spec)
      : spec_(spec),
        y_stats_(context, spec.y, spec.y_style, spec.y_stats),
        dx_stats_(context, spec.dx) {
    dx_stats_.PassScale(spec.dy);
  }
  void Forward(const Pass& pass) override {
    y_stats_.Round(pass, SpanOf(spec_.y), FunctionValue<Function>{SpanOf(spec_.x)});
  }
  void Backward(const Pass& pass) override {
    if (!spec_.dx) return;
    dx_stats_.Round(pass, SpanOf(spec_.dx.tensor),
                    SlopeValue<Function>{SpanOf(spec_.dy.tensor), SpanOf(spec_.x)});
  }

 private:
  RoundedLayerSpec spec_;
  RoundingStats y_stats_, dx_stats_;
};

}  // namespace

template <>
std::unique_ptr<Op> MakeOp(const Context& c, const SigmoidSpec& s) {
  return std::make_unique<CudaActivation<Sigmoid>>(c, s);
}
template <>
std::unique_ptr<Op> MakeOp(const Context& c, const SiluSpec& s) {
  return std::make_unique<CudaActivation<Silu>>(c, s);
}

}  // namespace ada::backend::cuda
