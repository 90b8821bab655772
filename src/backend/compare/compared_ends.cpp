// What lies at the start of a pass, on two backends; and ops that are exact.
#include "backend/compare/compared_op.h"

namespace ada::backend::compare {
namespace {

class ComparedInput final : public ComparedOp<InputOp> {
 public:
  ComparedInput(Comparison& comparison, OpPair<InputOp> pair, const InputSpec& spec)
      : ComparedOp(comparison, std::move(pair)), spec_(spec) {}
  void SetImages(const float* images, int rows) override {
    first().SetImages(images, rows), second().SetImages(images, rows);
  }

 private:
  void Check(const std::string& phase, const Pass& pass, Checker& checker) override {
    if (phase == "forward")
      checker.Check(OutputOf("y", spec_.y, spec_.y_style, spec_.y_stats), pass);
  }
  const InputSpec spec_;
};

}  // namespace

void ExactOp::Check(const std::string& phase, const Pass& pass, Checker& checker) {
  if (phase == "refresh weights") return;
  const bool is_backward = phase == "backward";
  if (is_backward) checker.CheckScaler(scaler, nullptr, 0), checker.CheckDecision(decision);
  for (const Output& out : is_backward ? backward : forward) {
    if (is_backward) checker.CheckScale(out.name, out.scale);
    if (out.tensor) checker.Check(out, pass);
  }
}

std::unique_ptr<InputOp> CompareOp(Comparison& comparison, OpPair<InputOp> pair,
                                   const InputSpec& spec) {
  return std::make_unique<ComparedInput>(comparison, std::move(pair), spec);
}

}  // namespace ada::backend::compare
