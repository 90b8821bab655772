// What lies at the ends of a step, on two backends: input, loss, update; and ops that are exact.
#include <algorithm>

#include "backend/compare/bounds.h"
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

// Logarithms in double: the fp32 gradient of a value may fall to either side of a boundary.
class ComparedLoss final : public ComparedOp<LossOp> {
 public:
  ComparedLoss(Comparison& comparison, OpPair<LossOp> pair, const LossSpec& spec)
      : ComparedOp(comparison, std::move(pair)), spec_(spec) {}
  void SetLabels(const std::int32_t* labels, int rows) override {
    labels_.assign(labels, labels + rows);
    first().SetLabels(labels, rows), second().SetLabels(labels, rows);
  }
  LossResult Result() override {
    const LossResult a = first().Result(), b = second().Result();
    Checker checker = MakeChecker("result");
    checker.CheckNumber("loss", a.loss_sum, b.loss_sum, kDoubleSums * std::fabs(a.loss_sum));
    checker.CheckNumber("top1", static_cast<double>(a.top1), static_cast<double>(b.top1), 0);
    checker.CheckNumber("top5", static_cast<double>(a.top5), static_cast<double>(b.top5), 0);
    return a;
  }

 private:
  void Check(const std::string& phase, const Pass& pass, Checker& checker) override {
    if (phase != "backward" || !spec_.dlogits) return;
    checker.CheckScale("dx", spec_.dlogits.scale);
    logits_ = checker.addresses().Values(0, spec_.logits, pass.rows);
    const FunctionBounds bounds([&](std::int64_t i) { return Before(i, pass); });
    checker.Check(OutputOf("dx", spec_.dlogits), pass, &bounds);
  }
  Interval Before(std::int64_t i, const Pass& pass) const {
    const std::int64_t classes = spec_.logits.shape.c, row = i / classes;
    const float* z = logits_.data() + row * classes;
    double highest = -INFINITY, sum = 0;
    for (std::int64_t k = 0; k < classes; ++k) highest = std::max(highest, Wide(z[k]));
    for (std::int64_t k = 0; k < classes; ++k) sum += std::exp(Wide(z[k]) - highest);
    const double smoothing = Wide(spec_.label_smoothing),
                 p = std::exp(Wide(z[i % classes]) - highest) / sum;
    const bool hit = labels_[static_cast<std::size_t>(row)] == i % classes;
    const double target = smoothing / static_cast<double>(classes) + (hit ? 1 - smoothing : 0.0);
    const auto rows = static_cast<double>(pass.loss_rows);
    const double g = (p - target) / rows, error = 0x1p-40 * (p + target) / rows;
    Interval in = {g - error, g + error};
    if (!in.finite()) return in;
    if (spec_.reference) in = RoundedTo(spec_.dlogits.tensor.format, in);
    const Ends ends = EndsOf(in);
    return {static_cast<double>(ends.low * pass.loss_scale),
            static_cast<double>(ends.high * pass.loss_scale)};
  }

  const LossSpec spec_;
  std::vector<std::int32_t> labels_;
  std::vector<float> logits_;
};

// Equal, but where something rests on the norm (clipping) or on powers (Adam): then within some
// units in the last place of what is added up.
class ComparedUpdate final : public UpdateOp {
 public:
  ComparedUpdate(Comparison& comparison, std::unique_ptr<UpdateOp> first,
                 std::unique_ptr<UpdateOp> second, const UpdateRule& rule,
                 std::vector<UpdateSlot> slots)
      : comparison_(comparison),
        first_(std::move(first)),
        second_(std::move(second)),
        rule_(rule),
        slots_(std::move(slots)) {}

  void Look() override { first_->Look(), second_->Look(); }
  void Update(const UpdatePlan& plan) override {
    std::vector<Old> old;
    for (const UpdateSlot& slot : slots_) old.push_back(Keep(slot));
    first_->Update(plan), second_->Update(plan);
    const UpdateOutcome a = first_->Outcome(), b = second_->Outcome();
    Difference about;
    about.call = ++comparison_.calls, about.op = "update", about.phase = "update";
    Checker checker(comparison_.addresses, about, comparison_.slack, comparison_.report);
    CheckOutcome(a, b, checker);
    const bool exact = rule_.kind == UpdateRule::Kind::kSgd && !a.clipped;
    for (std::size_t i = 0; i < slots_.size(); ++i) CheckSlot(slots_[i], old[i], exact, checker);
  }
  UpdateOutcome Outcome() override { return first_->Outcome(); }

 private:
  struct Old {
    std::vector<float> value, gradient, state1, state2;
  };
  Old Keep(const UpdateSlot& slot) const {
    const auto all = [&](const Tensor& t) {
      return t ? comparison_.addresses.Values(0, t, t.shape.n) : std::vector<float>();
    };
    return {all(slot.value), all(slot.gradient), all(slot.state1), all(slot.state2)};
  }
  static void CheckOutcome(const UpdateOutcome& a, const UpdateOutcome& b, Checker& checker) {
    checker.CheckNumber("overflow", a.overflow, b.overflow, 0);
    if (!a.overflow) checker.CheckNumber("norm", a.norm, b.norm, kDoubleSums * a.norm);
    checker.CheckNumber("largest", Wide(a.largest), Wide(b.largest), 0);
    checker.CheckNumber("watched", a.watched, b.watched, 0);
    checker.CheckNumber("updated", a.updated, b.updated, 0);
    checker.CheckNumber("clipped", a.clipped, b.clipped, 0);
  }
  void CheckSlot(const UpdateSlot& slot, const Old& old, bool exact, Checker& checker) const {
    const auto check = [&](const char* name, const Tensor& tensor, const std::vector<float>& was) {
      if (!tensor) return;
      const std::vector<float> now = comparison_.addresses.Values(0, tensor, tensor.shape.n);
      checker.CheckNear(name, tensor, [&](std::size_t i) {
        const double g = Wide(old.gradient[i]);
        return exact ? 0
                     : 0x1p-21 * (std::fabs(Wide(was[i])) + std::fabs(Wide(now[i])) + std::fabs(g));
      });
    };
    check("value", slot.value, old.value);
    check("state1", slot.state1, old.state1);
    check("state2", slot.state2, old.state2);
    comparison_.addresses.Copy(slot.gradient.data, slot.gradient.bytes());
  }

  Comparison& comparison_;
  std::unique_ptr<UpdateOp> first_, second_;
  const UpdateRule rule_;
  const std::vector<UpdateSlot> slots_;
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
std::unique_ptr<LossOp> CompareOp(Comparison& comparison, OpPair<LossOp> pair,
                                  const LossSpec& spec) {
  return std::make_unique<ComparedLoss>(comparison, std::move(pair), spec);
}
std::unique_ptr<UpdateOp> CompareUpdate(Comparison& comparison, std::unique_ptr<UpdateOp> first,
                                        std::unique_ptr<UpdateOp> second, const UpdateRule& rule,
                                        std::vector<UpdateSlot> slots) {
  return std::make_unique<ComparedUpdate>(comparison, std::move(first), std::move(second), rule,
                                          std::move(slots));
}

}  // namespace ada::backend::compare
