// Attention on two backends.
#include <algorithm>

#include "backend/compare/attention_bounds.h"
#include "backend/compare/compared_op.h"

namespace ada::backend::compare {
namespace {

using Decision = AttentionSpec::Decision;

class ComparedAttention final : public ComparedOp<Op> {
 public:
  ComparedAttention(Comparison& comparison, OpPair<Op> pair, const AttentionSpec& spec)
      : ComparedOp(comparison, std::move(pair)),
        spec_(spec),
        operands_(comparison.addresses, spec_) {
    spec_.dx.resize(3);
  }

 private:
  void Before(const std::string&, const Pass& pass) override {
    operands_.Begin(pass, comparison().slack);
  }
  void Check(const std::string& phase, const Pass& pass, Checker& checker) override {
    if (phase == "forward") return CheckForward(pass, checker);
    const bool any = std::any_of(spec_.dx.begin(), spec_.dx.end(),
                                 [](const Gradient& dx) { return static_cast<bool>(dx); });
    if (phase == "backward" && any) CheckBackward(pass, checker);
  }

  void CheckForward(const Pass& pass, Checker& checker) {
    if (spec_.p_stats != nullptr) {
      const FunctionBounds p([&](std::int64_t i) { return operands_.P(i); });
      checker.Check(OutputOf("p", operands_.Scores(spec_.rounds_p ? spec_.p_format : kFp32),
                             spec_.p_style, spec_.p_stats),
                    pass, &p);
    }
    const FunctionBounds y([&](std::int64_t i) { return operands_.Y(i); });
    checker.Check(OutputOf("y", spec_.y, spec_.y_style, spec_.y_stats), pass, &y);
  }

  // Decisions rest on moments of rounded values, some of which lie beside a boundary.
  void CheckBackward(const Pass& pass, Checker& checker) {
    checker.set_decision_bound(0x1p-7);
    if (spec_.rounds_ds) {
      const auto [a, b] = AlphasOf(Decision::kDs, checker);
      operands_.SetAlphas(a, b);
      const FunctionBounds ds([&](std::int64_t i) { return operands_.Ds(i); });
      checker.CheckScaler(spec_.scalers[Decision::kDs], &ds, operands_.scores(pass));
      checker.CheckScale("ds", spec_.ds_scale);
      const FunctionBounds scaled(
          [&, a = a, b = b](std::int64_t i) { return Either(ds, i, a, b); });
      Output out =
          OutputOf("ds", operands_.Scores(spec_.ds_format), spec_.ds_style, spec_.ds_stats);
      out.scale = spec_.ds_scale;
      if (spec_.ds_stats != nullptr) checker.Check(out, pass, &scaled);
    } else {
      checker.CheckScale("ds", spec_.ds_scale);
    }
    CheckGradient("dq", Decision::kDq, spec_.dx[0], pass, checker,
                  FunctionBounds([&](std::int64_t i) { return operands_.Dq(i); }));
    CheckGradient("dk", Decision::kDk, spec_.dx[1], pass, checker,
                  FunctionBounds([&](std::int64_t i) { return operands_.Dk(i); }));
    CheckGradient("dv", Decision::kDv, spec_.dx[2], pass, checker,
                  FunctionBounds([&](std::int64_t i) { return operands_.Dv(i); }));
  }
  void CheckGradient(const char* name, Decision decision, const Gradient& dx, const Pass& pass,
                     Checker& checker, const ReferenceBounds& before) {
    const auto [a, b] = AlphasOf(decision, checker);
    const std::int64_t values = dx ? pass.rows * dx.tensor.shape.per_image() : 0;
    checker.CheckScaler(spec_.scalers[decision], &before, values);
    if (!dx) return;
    checker.CheckScale(name, dx.scale);
    const FunctionBounds scaled(
        [&, a = a, b = b](std::int64_t i) { return Either(before, i, a, b); });
    Output out = OutputOf(name, dx);
    checker.Check(out, pass, &scaled);
  }
  static Interval Either(const ReferenceBounds& before, std::int64_t i, double a, double b) {
    const Interval x = Times(before.Before(i), a), y = Times(before.Before(i), b);
    return {std::min(x.low, y.low), std::max(x.high, y.high)};
  }
  std::pair<double, double> AlphasOf(Decision decision, const Checker& checker) const {
    const scaling::LayerScaler* scaler = spec_.scalers[decision];
    if (scaler == nullptr) return {1, 1};
    const float* alpha = &scaler->decision.alpha;
    return {Wide(checker.addresses().Read(0, alpha)), Wide(checker.addresses().Read(1, alpha))};
  }

  AttentionSpec spec_;
  AttentionOperands operands_;
};

}  // namespace

std::unique_ptr<Op> CompareOp(Comparison& comparison, OpPair<Op> pair, const AttentionSpec& spec) {
  return std::make_unique<ComparedAttention>(comparison, std::move(pair), spec);
}

}  // namespace ada::backend::compare
