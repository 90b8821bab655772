// Batch norm, with what is fused to it, on two backends.
#include "backend/compare/batch_norm_bounds.h"
#include "backend/compare/compared_op.h"

namespace ada::backend::compare {
namespace {

class ComparedBatchNorm final : public ComparedOp<Op> {
 public:
  ComparedBatchNorm(Comparison& comparison, OpPair<Op> pair, const BatchNormSpec& spec)
      : ComparedOp(comparison, std::move(pair)),
        spec_(spec),
        operands_(comparison.addresses, spec_) {}

 private:
  void Before(const std::string& phase, const Pass& pass) override {
    if (phase != "refresh weights") operands_.Begin(pass, phase == "backward");
  }
  void Check(const std::string& phase, const Pass& pass, Checker& checker) override {
    if (phase == "refresh weights") return;
    operands_.Finish(checker.slack());
    if (phase == "forward") return CheckForward(pass, checker);
    CheckBackward(pass, checker);
  }

  void CheckForward(const Pass& pass, Checker& checker) {
    const FunctionBounds y([&](std::int64_t i) { return operands_.Y(i); });
    Output out = OutputOf(spec_.addend ? "sum" : "y", spec_.out,
                          spec_.addend ? spec_.sum_style : spec_.y_style,
                          spec_.addend ? spec_.sum_stats : spec_.y_stats);
    out.relu = spec_.relu;
    if (spec_.addend) {
      CheckSum(out, y, pass, checker);
    } else {
      checker.Check(out, pass, &y);
    }
    if (!pass.training) return;
    CheckParameter("running_mean", spec_.running_mean, pass, checker,
                   [&](std::int64_t c) { return operands_.RunningMean(c); });
    CheckParameter("running_var", spec_.running_var, pass, checker,
                   [&](std::int64_t c) { return operands_.RunningVar(c); });
  }

  // Two roundings: y, which nobody stores, then the sum.
  void CheckSum(const Output& sum, const ReferenceBounds& y, const Pass& pass, Checker& checker) {
    Output normalized = OutputOf("y", spec_.out, spec_.y_style, spec_.y_stats);
    normalized.tensor.data = nullptr, normalized.format = spec_.y_format;
    checker.Check(normalized, pass, &y);
    const scaling::TensorScaler* own = spec_.y_style.per_tensor_scale;
    const Rounder rounder(spec_.y_format, spec_.y_style,
                          own == nullptr ? 1 : checker.addresses().Read(0, &own->scale), pass);
    const FunctionBounds before([&](std::int64_t i) -> Interval {
      const Interval in = y.Before(i);
      if (!in.finite()) return in;
      const Range range = StoredRange(rounder, in, i);
      return {static_cast<double>(range.low + operands_.addend(i)),
              static_cast<double>(range.high + operands_.addend(i))};
    });
    checker.Check(sum, pass, &before);
  }

  template <class F>
  void CheckParameter(const char* name, const Tensor& tensor, const Pass& pass, Checker& checker,
                      F&& f) {
    const FunctionBounds bounds(f);
    checker.Check(ParameterOf(name, tensor), pass, &bounds);
  }

  void CheckBackward(const Pass& pass, Checker& checker) {
    if (!spec_.dgamma) return;
    CheckParameter("dgamma", spec_.dgamma, pass, checker,
                   [&](std::int64_t c) { return operands_.Dgamma(c); });
    CheckParameter("dbeta", spec_.dbeta, pass, checker,
                   [&](std::int64_t c) { return operands_.Dbeta(c); });
    const bool apart = spec_.dx.tensor.data != spec_.dy.tensor.data;
    if (spec_.relu && apart) checker.Check(OutputOf("dy", spec_.dy.tensor), pass);
    if (spec_.dx) CheckData(pass, checker);
  }

  void CheckData(const Pass& pass, Checker& checker) {
    const FunctionBounds before([&](std::int64_t i) { return operands_.Dx(i); });
    double a = 1, b = 1;  // alphas
    if (spec_.scaler != nullptr) {
      const float* place = &spec_.scaler->decision.alpha;
      a = static_cast<double>(checker.addresses().Read(0, place));
      b = static_cast<double>(checker.addresses().Read(1, place));
    }
    checker.CheckScaler(spec_.scaler, &before, pass.rows * spec_.x.shape.per_image());
    checker.CheckScale("dx", spec_.dx.scale);
    const FunctionBounds dx([&](std::int64_t i) {
      const Interval x = Times(before.Before(i), a), y = Times(before.Before(i), b);
      return Interval{std::min(x.low, y.low), std::max(x.high, y.high)};
    });
    checker.Check(OutputOf("dx", spec_.dx), pass, &dx);
  }

  const BatchNormSpec spec_;
  BatchNormOperands operands_;
};

}  // namespace

std::unique_ptr<Op> CompareOp(Comparison& comparison, OpPair<Op> pair, const BatchNormSpec& spec) {
  return std::make_unique<ComparedBatchNorm>(comparison, std::move(pair), spec);
}

}  // namespace ada::backend::compare
