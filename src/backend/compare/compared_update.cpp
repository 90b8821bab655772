// The update and the running averages after it, on two backends.
#include <algorithm>
#include <cmath>

#include "backend/compare/bounds.h"
#include "backend/compare/compared_op.h"

namespace ada::backend::compare {
namespace {

// A value that is rounded may fall to either side: the largest spacing of the format up to it.
double SpacingAround(const NumberFormat& format, double magnitude) {
  return std::max(std::ldexp(magnitude, -format.mantissa_bits), format.smallest_subnormal());
}

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
  std::vector<TensorStats> Stats() const override { return first_->Stats(); }

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
    const auto check = [&](const char* name, const Tensor& tensor, const std::vector<float>& was,
                           const NumberFormat& kept) {
      if (!tensor) return;
      const std::vector<float> now = comparison_.addresses.Values(0, tensor, tensor.shape.n);
      checker.CheckNear(name, tensor, [&](std::size_t i) {
        if (exact) return 0.0;
        const double g = Wide(old.gradient[i]), a = std::fabs(Wide(now[i]));
        const double sums = 0x1p-21 * (std::fabs(Wide(was[i])) + a + std::fabs(g));
        return sums + (kept == kFp32 ? 0 : SpacingAround(kept, a));
      });
    };
    check("value", slot.value, old.value, rule_.masters.format);
    check("state1", slot.state1, old.state1, rule_.state.format);
    check("state2", slot.state2, old.state2, rule_.state.format);
    comparison_.addresses.Copy(slot.gradient.data, slot.gradient.bytes());
  }

  Comparison& comparison_;
  std::unique_ptr<UpdateOp> first_, second_;
  const UpdateRule rule_;
  const std::vector<UpdateSlot> slots_;
};

class ComparedAverage final : public AverageOp {
 public:
  ComparedAverage(Comparison& comparison, std::unique_ptr<AverageOp> first,
                  std::unique_ptr<AverageOp> second, std::vector<AverageSlot> slots)
      : comparison_(comparison),
        first_(std::move(first)),
        second_(std::move(second)),
        slots_(std::move(slots)) {}

  void Step(double keep) override {
    first_->Step(keep), second_->Step(keep);
    Difference about;
    about.call = ++comparison_.calls, about.op = "average", about.phase = "update";
    Checker checker(comparison_.addresses, about, comparison_.slack, comparison_.report);
    for (const AverageSlot& slot : slots_)
      checker.CheckNear("average", slot.average, [](std::size_t) { return 0.0; });
  }

 private:
  Comparison& comparison_;
  std::unique_ptr<AverageOp> first_, second_;
  const std::vector<AverageSlot> slots_;
};

}  // namespace

std::unique_ptr<UpdateOp> CompareUpdate(Comparison& comparison, std::unique_ptr<UpdateOp> first,
                                        std::unique_ptr<UpdateOp> second, const UpdateRule& rule,
                                        std::vector<UpdateSlot> slots) {
  return std::make_unique<ComparedUpdate>(comparison, std::move(first), std::move(second), rule,
                                          std::move(slots));
}

std::unique_ptr<AverageOp> CompareAverage(Comparison& comparison, std::unique_ptr<AverageOp> first,
                                          std::unique_ptr<AverageOp> second,
                                          std::vector<AverageSlot> slots) {
  return std::make_unique<ComparedAverage>(comparison, std::move(first), std::move(second),
                                           std::move(slots));
}

}  // namespace ada::backend::compare
