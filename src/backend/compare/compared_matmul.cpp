// Convolution and linear layers on two backends.
#include <algorithm>

#include "backend/compare/compared_op.h"
#include "backend/compare/matmul_bounds.h"
#include "backend/decisions.h"

namespace ada::backend::compare {
namespace {

bool IsFp8(NumberFormat format) {
  format.saturate = false;
  return format == kFp8E4M3 || format == kFp8E5M2;
}

class ComparedMatmul final : public ComparedOp<Op> {
 public:
  ComparedMatmul(Comparison& comparison, OpPair<Op> pair, const MatmulSpec& spec,
                 const Window& window)
      : ComparedOp(comparison, std::move(pair)),
        spec_(spec),
        operands_(comparison.addresses, spec_, window) {
    RefuseOperands(spec, "device.compare");
  }

 private:
  void Before(const std::string& phase, const Pass& pass) override {
    if (phase == "refresh weights") return operands_.Refresh(pass);
    operands_.Begin(pass);
    old_dw_.clear(), old_db_.clear();
    if (phase != "backward" || !spec_.dw) return;
    if (pass.accumulate || spec_.adds_dw)
      old_dw_ = comparison().addresses.Values(0, spec_.dw, spec_.dw.shape.n);
    if (pass.accumulate && spec_.db)
      old_db_ = comparison().addresses.Values(0, spec_.db, spec_.db.shape.n);
  }
  void Check(const std::string& phase, const Pass& pass, Checker& checker) override {
    if (phase == "refresh weights") return CheckWeights(pass, checker);
    if (phase == "forward") return CheckForward(pass, checker);
    if (!spec_.dw) return;
    CheckData(pass, checker);
    CheckWeightGradient(pass, checker);
    CheckBiasGradient(pass, checker);
  }

  // The copies are private: what was counted of them tells.
  void CheckWeights(const Pass& pass, Checker& checker) {
    Output w = ParameterOf("w", spec_.w);
    w.format = spec_.w_format, w.style = spec_.w_style, w.stats = spec_.w_stats;
    w.tensor.data = nullptr;
    checker.Check(w, pass);
  }

  // Bounds a sum of products of values of two formats.
  Interval AroundSum(const Sum& sum, const NumberFormat& first, const NumberFormat& second,
                     const Checker& checker) {
    const bool fp8 = comparison().fp8_sums && IsFp8(first) && IsFp8(second);
    return fp8 ? AroundFp8(sum, checker.slack()) : Around(sum, checker.slack());
  }

  void CheckForward(const Pass& pass, Checker& checker) {
    const FunctionBounds y([&](std::int64_t i) {
      return AroundSum(operands_.Y(i), spec_.x.format, spec_.w_format, checker);
    });
    checker.Check(OutputOf("y", spec_.y, spec_.y_style, spec_.y_stats), pass, &y);
  }

  void CheckData(const Pass& pass, Checker& checker) {
    if (!spec_.dx) return;
    const float* place = &spec_.scaler->decision.alpha;
    const auto a = static_cast<double>(checker.addresses().Read(0, place)),
               b = static_cast<double>(checker.addresses().Read(1, place));
    const bool first = operands_.alpha_comes_first();
    const std::int64_t values = pass.rows * spec_.x.shape.per_image();
    const FunctionBounds dgrad([&](std::int64_t i) {
      return AroundSum(operands_.Dx(i), spec_.dy.tensor.format, spec_.w_format, checker);
    });
    checker.CheckScaler(spec_.scaler, &dgrad, values);
    checker.CheckScale("dx", spec_.dx.scale);
    operands_.SetAlpha(static_cast<float>(a));
    const FunctionBounds dx([&](std::int64_t i) -> Interval {
      const Interval in = dgrad.Before(i);
      if (a == b) return first ? in : Times(in, a);
      if (first) return {-INFINITY, INFINITY};  // the rounding of dy differs: nothing is known
      const Interval x = Times(in, a), y = Times(in, b);
      return {std::min(x.low, y.low), std::max(x.high, y.high)};
    });
    checker.Check(OutputOf("dx", spec_.dx), pass, &dx);
  }

  bool rounds_dw() const {
    return !(spec_.dw_format == kFp32) || spec_.dw_style.per_tensor_scale != nullptr;
  }
  // (gradient, under the authors' rules rounded) / S, added to what was there, if anything was.
  Interval Unscaled(Interval in, bool round, const std::vector<float>& old, std::int64_t i,
                    double s) const {
    if (round) in = RoundedTo(spec_.dw_format, in);
    in = Times(in, 1 / s);
    const double error = 0x1p-23 * std::max(std::fabs(in.low), std::fabs(in.high));
    in = {in.low - error, in.high + error};
    return old.empty() ? in : Plus(in, static_cast<double>(old[static_cast<std::size_t>(i)]));
  }

  void CheckWeightGradient(const Pass& pass, Checker& checker) {
    const auto s = static_cast<double>(checker.addresses().Read(0, spec_.dy.scale));
    const bool round = spec_.reference && rounds_dw();
    const FunctionBounds dw([&](std::int64_t i) {
      const Interval sum =
          AroundSum(operands_.Dw(i), spec_.x.format, spec_.dy.tensor.format, checker);
      return Unscaled(sum, round, old_dw_, i, s);
    });
    Output out = ParameterOf("dw", spec_.dw);
    out.format = spec_.dw_format, out.style = spec_.dw_style, out.stats = spec_.dw_stats;
    checker.Check(out, pass, &dw);
  }

  void CheckBiasGradient(const Pass& pass, Checker& checker) {
    if (!spec_.db) return;
    const auto s = static_cast<double>(checker.addresses().Read(0, spec_.dy.scale));
    const FunctionBounds db([&](std::int64_t i) {
      return Unscaled(Around(operands_.Db(i), checker.slack()), spec_.reference, old_db_, i, s);
    });
    Output out = ParameterOf("db", spec_.db);
    if (spec_.reference) out.format = spec_.dw_format;
    checker.Check(out, pass, &db);
  }

  const MatmulSpec spec_;
  MatmulOperands operands_;
  std::vector<float> old_dw_, old_db_;
};

// On a sequence: each position of x where y has it.
LinearSpec ByPosition(LinearSpec spec) {
  const Shape& y = spec.y.shape;
  if (y.h * y.w == 1) return spec;
  spec.x.shape = {y.n, y.h, y.w, spec.w.shape.per_image()};
  if (spec.dx) spec.dx.tensor.shape = spec.x.shape;
  return spec;
}

}  // namespace

std::unique_ptr<Op> CompareOp(Comparison& comparison, OpPair<Op> pair, const Conv2dSpec& spec) {
  return std::make_unique<ComparedMatmul>(comparison, std::move(pair), spec, WindowOf(spec));
}
std::unique_ptr<Op> CompareOp(Comparison& comparison, OpPair<Op> pair,
                              const ConvTranspose2dSpec& spec) {
  return std::make_unique<ComparedMatmul>(comparison, std::move(pair), spec, WindowOf(spec));
}
std::unique_ptr<Op> CompareOp(Comparison& comparison, OpPair<Op> pair, const LinearSpec& spec) {
  const LinearSpec flat = ByPosition(spec);
  return std::make_unique<ComparedMatmul>(comparison, std::move(pair), flat, WindowOf(flat));
}

}  // namespace ada::backend::compare
