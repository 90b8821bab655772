// The update op against update_rules.h value by value (that those follow torch.optim is shown in
// tests/optim), and the gradient norm against a sum in double.
#include <doctest/doctest.h>

#include "backend/op_bench.h"
#include "backend/update_rules.h"

namespace ada::backend::test {
namespace {

// Slots around the lengths at which work is cut: vectors of 16, segments of 16,384.
const std::vector<std::size_t> kLengths = {1, 15, 16, 432, 16384, 40001};

// Measures gradients as they stand with an op of SGD: a rate of 0 changes nothing.
UpdateOutcome Measure(UpdateOp& op) {
  UpdatePlan plan;
  plan.largest = true;
  op.Update(plan);
  return op.Outcome();
}

struct UpdateBench {
  UpdateBench(Bench& bench, const UpdateRule& rule, int states) {
    for (std::size_t i = 0; i < kLengths.size(); ++i) {
      UpdateSlot slot;
      slot.value = bench.Vector(Normal(kLengths[i], 0.1, 10 * i));
      slot.gradient = bench.Vector(Normal(kLengths[i], 0.01, 10 * i + 1));
      if (states > 0) slot.state1 = bench.Vector(Values(kLengths[i]));
      if (states > 1) slot.state2 = bench.Vector(Values(kLengths[i]));
      slot.decay = i % 2 == 0;
      slots.push_back(slot);
    }
    op = bench->MakeUpdate(rule, slots, {});
    measured = bench->MakeUpdate(UpdateRule{}, slots, {});
  }
  UpdateOutcome Measure() const { return test::Measure(*measured); }
  std::vector<UpdateSlot> slots;
  std::unique_ptr<UpdateOp> op, measured;
};

Values GetOr(const Tensor& t, std::size_t n) { return t ? Bench::Get(t) : Values(n); }

// One update, by the scalar rules.
void CheckUpdate(const UpdateRule& rule, const UpdatePlan& plan, UpdateBench& bench) {
  const std::vector<UpdateSlot>& slots = bench.slots;
  UpdateOp& op = *bench.op;
  UpdateStep step = plan.step;
  step.gradient_factor = ClipFactor(bench.Measure().norm, plan.clip_norm);
  std::vector<Values> value, state1, state2;
  for (const UpdateSlot& slot : slots) {
    const auto n = static_cast<std::size_t>(slot.value.shape.numel());
    const UpdateScalars s = MakeUpdateScalars(rule, step, 1, slot.decay);
    Values v = Bench::Get(slot.value), a = GetOr(slot.state1, n), b = GetOr(slot.state2, n);
    const Values g = Bench::Get(slot.gradient);
    for (std::size_t i = 0; i < n; ++i)
      v[i] = rule.kind != UpdateRule::Kind::kSgd ? AdamUpdate(s, v[i], g[i], a[i], b[i])
             : slot.state1                       ? SgdMomentumUpdate(s, v[i], g[i], a[i])
                                                 : SgdUpdate(s, v[i], g[i]);
    value.push_back(v), state1.push_back(a), state2.push_back(b);
  }
  op.Update(plan);
  CHECK(op.Outcome().updated);
  CHECK(op.Outcome().clipped == (plan.clip_norm > 0));
  for (std::size_t i = 0; i < slots.size(); ++i) {
    CheckEqual(slots[i].value, value[i]);
    if (slots[i].state1) CheckEqual(slots[i].state1, state1[i]);
    if (slots[i].state2) CheckEqual(slots[i].state2, state2[i]);
  }
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("update: every rule, several updates, decay per slot, clipping factor") {
    using K = UpdateRule::Kind;
    struct Case {
      K kind;
      int states;
      double momentum;
      bool nesterov;
      double weight_decay;
    };
    for (const Case& c : {Case{K::kSgd, 0, 0, false, 0},
                          {K::kSgd, 0, 0, false, 1e-2},
                          {K::kSgd, 1, 0.9, false, 1e-4},
                          {K::kSgd, 1, 0.9, true, 1e-2},
                          {K::kAdam, 2, 0, false, 0},
                          {K::kAdam, 2, 0, false, 1e-2},
                          {K::kAdamW, 2, 0, false, 1e-2}}) {
      CAPTURE(static_cast<int>(c.kind));
      CAPTURE(c.momentum);
      UpdateRule rule;
      rule.kind = c.kind, rule.momentum = c.momentum, rule.nesterov = c.nesterov;
      rule.weight_decay = c.weight_decay;
      Bench bench;
      UpdateBench b(bench, rule, c.states);
      for (int count = 1; count <= 4; ++count) {
        UpdatePlan plan;
        plan.step.lr = 0.1 / count, plan.step.count = count;
        plan.clip_norm = count == 3 ? 0.37 : 0;
        CheckUpdate(rule, plan, b);
      }
    }
  }

  TEST_CASE("gradient norm: of all gradients together, in double") {
    Bench bench;
    UpdateBench b(bench, UpdateRule{}, 0);
    double sum = 0;
    for (const UpdateSlot& slot : b.slots)
      for (const float g : Bench::Get(slot.gradient)) sum += std::pow(static_cast<double>(g), 2);
    CHECK(b.Measure().norm == doctest::Approx(std::sqrt(sum)).epsilon(1e-12));
  }

  TEST_CASE("gradient norm: squares far beyond fp32's range, and below it") {
    for (const float g : {1e30f, 1e-30f}) {
      Bench bench;
      UpdateSlot slot;
      slot.value = bench.Vector(Values(100)), slot.gradient = bench.Vector(Values(100, g));
      const auto op = bench->MakeUpdate(UpdateRule{}, {slot}, {});
      CHECK(Measure(*op).norm ==
            doctest::Approx(10 * static_cast<double>(g)).epsilon(1e-12).scale(1e-40));
    }
  }

  TEST_CASE("largest gradient: a magnitude, inf before it, NaN before all, wherever it is") {
    const float inf = std::numeric_limits<float>::infinity();
    for (std::size_t slot = 0; slot < kLengths.size(); ++slot) {
      Bench bench;
      UpdateBench b(bench, UpdateRule{}, 0);
      float* last = b.slots[slot].gradient.f32() + kLengths[slot] - 1;
      float* first = b.slots[kLengths.size() - 1 - slot].gradient.f32();
      *last = -7.5f;
      CHECK(b.Measure().largest == 7.5f);
      *last = -inf;
      CHECK(b.Measure().largest == inf);
      *first = std::nanf("");
      CHECK(std::isnan(b.Measure().largest));
    }
    Bench bench;
    UpdateSlot slot;
    slot.value = slot.gradient = bench.Vector(Values(100));
    CHECK(Measure(*bench->MakeUpdate(UpdateRule{}, {slot}, {})).largest == 0);
  }

  TEST_CASE("sanitize: NaN become 0, what is larger the limit with its sign, the rest stays") {
    const float inf = std::numeric_limits<float>::infinity();
    for (const float limit : {0.01f, 65504.0f}) {
      Bench bench;
      UpdateBench b(bench, UpdateRule{}, 0);
      std::vector<Values> want;
      for (const UpdateSlot& slot : b.slots) {
        Values& g = want.emplace_back(Bench::Get(slot.gradient));
        const float bad[] = {inf, -inf, std::nanf(""), -std::nanf(""), 70000, -70000, 65504, -0.0f};
        for (std::size_t i = 0; i < g.size(); i += 3) g[i] = bad[i / 3 % 8];
        Bench::Set(slot.gradient, g);
        for (float& v : g) {
          if (std::isnan(v)) v = 0;
          if (std::fabs(v) > limit) v = std::copysign(limit, v);
        }
      }
      UpdatePlan plan;
      plan.on_overflow = UpdatePlan::OnOverflow::kSanitize, plan.sanitize_to = limit;
      b.op->Update(plan);
      CHECK(b.op->Outcome().overflow);
      CHECK(b.op->Outcome().updated);
      for (std::size_t i = 0; i < want.size(); ++i) CheckEqual(b.slots[i].gradient, want[i]);
      CHECK(b.Measure().largest == limit);
      CHECK(std::isfinite(b.Measure().norm));
    }
  }

  TEST_CASE("a gradient that is not finite: nothing changes, unless it is to be repaired") {
    const float inf = std::numeric_limits<float>::infinity();
    Bench bench;
    UpdateBench b(bench, UpdateRule{}, 0);
    std::vector<Values> before, gradients;
    b.slots[3].gradient.f32()[7] = -inf;
    for (const UpdateSlot& slot : b.slots) {
      before.push_back(Bench::Get(slot.value));
      gradients.push_back(Bench::Get(slot.gradient));
    }
    UpdatePlan plan;
    plan.step.lr = 1, plan.sanitize_to = 2, plan.clip_norm = 100;
    b.op->Update(plan);
    CHECK(b.op->Outcome().overflow);
    CHECK_FALSE(b.op->Outcome().updated);
    for (std::size_t i = 0; i < before.size(); ++i) {
      CheckEqual(b.slots[i].value, before[i]);
      CheckEqual(b.slots[i].gradient, gradients[i]);
    }
    plan.on_overflow = UpdatePlan::OnOverflow::kSanitize;
    b.op->Update(plan);
    CHECK(b.op->Outcome().overflow);  // as they came
    CHECK(b.op->Outcome().updated);
    CHECK_FALSE(b.op->Outcome().clipped);  // by the norm of the repaired ones
    CHECK(b.slots[3].value.f32()[7] == before[3][7] + 2);
  }

  TEST_CASE("watched roundings: one that left its format in any look, and nothing changes") {
    const float inf = std::numeric_limits<float>::infinity();
    struct Row {
      float max_abs, most;
      bool left;
    };
    for (const Row& row :
         {Row{65504, 65519.996f, false}, Row{65520, 65519.996f, true}, Row{inf, inf, false},
          Row{std::nanf(""), inf, true}, Row{std::nanf(""), 1, true}, Row{0, 0, false}}) {
      CAPTURE(row.max_abs);
      Bench bench;
      const UpdateBench b(bench, UpdateRule{}, 0);
      TensorStats stats[3];
      const auto op = bench->MakeUpdate(UpdateRule{}, b.slots,
                                        {{&stats[0]}, {&stats[1], row.most}, {&stats[2], 1}});
      const Values before = Bench::Get(b.slots[3].value);
      UpdatePlan plan;
      plan.step.lr = 1;
      stats[1].max_abs = row.max_abs;
      op->CheckWatched();
      stats[1].max_abs = 0;  // the next micro-batch's
      op->CheckWatched();
      op->Update(plan);
      CHECK(op->Outcome().watched == row.left);
      CHECK(op->Outcome().updated == !row.left);
      CHECK_FALSE(op->Outcome().overflow);
      CHECK((Bench::Get(b.slots[3].value) == before) == row.left);
      stats[1].max_abs = inf;  // nobody looks
      op->Update(plan);
      CHECK(op->Outcome().updated);
    }
  }

  TEST_CASE("gradient norm: one value that is not finite, wherever it is") {
    const float inf = std::numeric_limits<float>::infinity();
    for (const float bad : {inf, -inf, std::nanf("")})
      for (std::size_t slot = 0; slot < kLengths.size(); ++slot) {
        Bench bench;
        UpdateBench b(bench, UpdateRule{}, 0);
        b.slots[slot].gradient.f32()[kLengths[slot] - 1] = bad;
        CHECK(!std::isfinite(b.Measure().norm));
        b.slots[slot].gradient.f32()[kLengths[slot] - 1] = 0;
        CHECK(std::isfinite(b.Measure().norm));
      }
  }
}

}  // namespace ada::backend::test
