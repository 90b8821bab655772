// Masters and optimizer state in few bits, what is counted of updates, and running averages: value
// by value against RoundTo and RoundStochastically.
#include "backend/update_rounding.h"

#include <doctest/doctest.h>

#include <cmath>

#include "backend/op_bench.h"
#include "number/number_format.h"

namespace ada::backend::test {
namespace {

using RoundedKind = UpdateRule::Kind;

constexpr std::size_t kRoundedLength = 20001;  // several segments of either backend

struct RoundedBench {
  RoundedBench(Bench& bench, const UpdateRule& rule, int states) {
    for (std::size_t i = 0; i < 2; ++i) {
      Values start = Normal(kRoundedLength, 0.1, 10 * i);
      for (float& v : start) v = RoundTo(rule.masters.format, v);
      UpdateSlot slot;
      slot.value = bench.Vector(start);
      slot.gradient = bench.Vector(Normal(kRoundedLength, 0.01, 10 * i + 1));
      slot.gradient.f32()[3] = 0;
      if (states > 0) slot.state1 = bench.Vector(Values(kRoundedLength));
      if (states > 1) slot.state2 = bench.Vector(Values(kRoundedLength));
      if (states > 2) slot.state3 = bench.Vector(Values(kRoundedLength));
      slot.stream = 77 + i;
      slots.push_back(slot);
    }
    slots[1].lr = 0.5;
    op = bench->MakeUpdate(rule, slots, {});
  }
  std::vector<UpdateSlot> slots;
  std::unique_ptr<UpdateOp> op;
};

float KeepIn(const StorageFormat& kept, float x, std::uint64_t stream, std::uint64_t part,
             const UpdateStep& step, std::size_t i) {
  if (!kept.stochastic) return RoundTo(kept.format, x);
  const auto words =
      Philox((step.seed ^ stream) + part, static_cast<std::uint64_t>(step.count), i / 4);
  return RoundStochastically(kept.format, x, words[i % 4]);
}

struct Want {
  Values value = {}, state1 = {}, state2 = {};
  Values wide = {}, wide1 = {},
         wide2 = {};  // the same before they were rounded where they are kept
  std::int64_t zeros = 0, lost = 0;
};
// Masters and states in fp32 are not counted.
void CheckStored(const TensorStats& stats, const StorageFormat& format, const Values& wide,
                 const Values& kept) {
  if (format.format == kFp32) {
    CHECK(stats.numel == 0);
    return;
  }
  std::int64_t zeros = 0, lost = 0, overflow = 0;
  double l1 = 0;
  for (std::size_t i = 0; i < wide.size(); ++i) {
    zeros += wide[i] == 0;
    lost += wide[i] != 0 && kept[i] == 0;
    overflow += std::isinf(RoundTo(format.format, wide[i]));
    l1 += std::fabs(static_cast<double>(wide[i]));
  }
  CHECK(stats.numel == static_cast<std::int64_t>(wide.size()));
  CHECK(stats.zeros_before == zeros);
  CHECK(stats.underflow == lost);
  CHECK(stats.overflow == overflow);
  CHECK(stats.l1 == doctest::Approx(l1));
}
Want Expected(const UpdateRule& rule, const UpdateSlot& slot, const UpdateStep& step) {
  Want want{Bench::Get(slot.value), slot.state1 ? Bench::Get(slot.state1) : Values(),
            slot.state2 ? Bench::Get(slot.state2) : Values()};
  const Values gradient = Bench::Get(slot.gradient);
  const UpdateScalars s = MakeUpdateScalars(rule, step, slot.lr, slot.decay);
  for (std::size_t i = 0; i < want.value.size(); ++i) {
    const float before = want.value[i];
    UpdateTerms terms{};
    if (slot.state2)
      terms = AdamTerms(s, before, gradient[i], want.state1[i], want.state2[i]);
    else if (slot.state1)
      terms = SgdMomentumTerms(s, before, gradient[i], want.state1[i]);
    else
      terms = SgdTerms(s, before, gradient[i]);
    want.wide.push_back(terms.base + terms.step);
    if (slot.state1) want.wide1.push_back(want.state1[i]);
    if (slot.state2) want.wide2.push_back(want.state2[i]);
    want.value[i] = KeepIn(rule.masters, want.wide[i], slot.stream, 0, step, i);
    if (slot.state1) want.state1[i] = KeepIn(rule.state, want.state1[i], slot.stream, 1, step, i);
    if (slot.state2) want.state2[i] = KeepIn(rule.state, want.state2[i], slot.stream, 2, step, i);
    const float asked = terms.step + (terms.base - before);
    want.zeros += asked == 0;
    want.lost += asked != 0 && want.value[i] == before;
  }
  return want;
}

void CheckRounded(const UpdateRule& rule, int states) {
  Bench bench;
  RoundedBench b(bench, rule, states);
  for (int count = 1; count <= 3; ++count) {
    UpdatePlan plan;
    plan.step.lr = 0.1, plan.step.count = count, plan.step.seed = 5, plan.count = count != 2;
    std::vector<Want> want;
    for (const UpdateSlot& slot : b.slots) want.push_back(Expected(rule, slot, plan.step));
    b.op->Update(plan);
    CHECK(b.op->Outcome().updated);
    const std::vector<TensorStats> stats = b.op->Stats();
    REQUIRE(stats.size() == (plan.count ? 2 * kUpdateParts : 0));
    for (std::size_t i = 0; i < want.size(); ++i) {
      CheckEqual(b.slots[i].value, want[i].value);
      if (states > 0) CheckEqual(b.slots[i].state1, want[i].state1);
      if (states > 1) CheckEqual(b.slots[i].state2, want[i].state2);
      if (!plan.count) continue;
      CHECK(stats[kUpdateParts * i].numel == static_cast<std::int64_t>(kRoundedLength));
      CHECK(stats[kUpdateParts * i].zeros_before == want[i].zeros);
      CHECK(stats[kUpdateParts * i].underflow == want[i].lost);
      CHECK(stats[kUpdateParts * i].zeros_after == want[i].zeros + want[i].lost);
      CheckStored(stats[kUpdateParts * i + 1], rule.masters, want[i].wide, want[i].value);
      if (states > 0)
        CheckStored(stats[kUpdateParts * i + 2], rule.state, want[i].wide1, want[i].state1);
      if (states > 1)
        CheckStored(stats[kUpdateParts * i + 3], rule.state, want[i].wide2, want[i].state2);
    }
  }
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("a weight that becomes the zero of the other sign has not moved") {
    for (const NumberFormat& masters : {kFp16, kFp32}) {
      CAPTURE(FormatName(masters));
      Bench bench;
      UpdateSlot slot;
      slot.value = bench.Vector({0, 0, -0.0f, 1, 0, 0});
      slot.gradient = bench.Vector({0x1p-149f, -0x1p-149f, -0x1p-149f, 1, 0, -0.5f});
      UpdateRule rule;
      rule.masters.format = masters;
      const auto op = bench->MakeUpdate(rule, {slot}, {});
      UpdatePlan plan;
      // 0.75 of the smallest fp32 is rounded to it, which fp16 does not have.
      plan.step.lr = masters == kFp16 ? 0.75 : 1, plan.step.count = 1, plan.count = true;
      op->Update(plan);
      CHECK(op->Outcome().updated);
      const TensorStats changes = op->Stats().front();
      const std::int64_t lost = masters == kFp16 ? 3 : 0;
      CHECK(changes.zeros_before == 1);
      CHECK(changes.underflow == lost);
      CHECK(changes.zeros_after == 1 + lost);
    }
  }

  TEST_CASE("masters and state in few bits, to nearest and stochastically, with counts") {
    for (const NumberFormat& format : {kFp32, kBf16, kFp16, kFp8E5M2})
      for (const bool stochastic : {false, true})
        for (const int states : {0, 1, 2}) {
          CAPTURE(FormatName(format));
          CAPTURE(stochastic);
          CAPTURE(states);
          UpdateRule rule;
          rule.weight_decay = 1e-2;
          if (states == 1) rule.momentum = 0.9;
          if (states == 2) rule.kind = RoundedKind::kAdamW;
          rule.masters = {format, stochastic};
          CheckRounded(rule, states);
          rule.state = {kBf16, stochastic};
          CheckRounded(rule, states);
        }
  }

  TEST_CASE("an update without counts equals one with them, by either arithmetic") {
    if (!kTestsCpu) return;  // other backends have fewer kinds
    struct Case {
      RoundedKind kind;
      int states;
    };
    for (const Case& c :
         {Case{RoundedKind::kSgd, 0}, Case{RoundedKind::kSgd, 1}, Case{RoundedKind::kAdam, 2},
          Case{RoundedKind::kAdam, 3}, Case{RoundedKind::kAdamW, 2}, Case{RoundedKind::kLion, 1},
          Case{RoundedKind::kRmsprop, 1}, Case{RoundedKind::kRmsprop, 2},
          Case{RoundedKind::kRmsprop, 3}, Case{RoundedKind::kNadam, 2},
          Case{RoundedKind::kRadam, 2}, Case{RoundedKind::kAdagrad, 1},
          Case{RoundedKind::kAdamax, 2}, Case{RoundedKind::kAdopt, 2},
          Case{RoundedKind::kAdemamix, 3}})
      for (const NumberFormat& format : {kBf16, kFp16})
        for (const auto& [weight_decay, arithmetic] :
             {std::pair{0.0, UpdateRule::Arithmetic::kTorch},
              std::pair{1e-2, UpdateRule::Arithmetic::kTorch},
              std::pair{0.0, UpdateRule::Arithmetic::kFp32}}) {
          CAPTURE(static_cast<int>(c.kind));
          CAPTURE(c.states);
          CAPTURE(FormatName(format));
          UpdateRule rule;
          rule.kind = c.kind, rule.weight_decay = weight_decay;
          rule.amsgrad = c.kind == RoundedKind::kAdam && c.states == 3;
          if (c.kind == RoundedKind::kSgd && c.states == 1) rule.momentum = 0.9;
          if (c.kind == RoundedKind::kRmsprop && c.states > 1) rule.momentum = 0.9;
          rule.centered = c.kind == RoundedKind::kRmsprop && c.states == 3;
          rule.masters.format = rule.state.format = format;
          rule.arithmetic = arithmetic;
          Bench bench;
          RoundedBench counted(bench, rule, c.states), alone(bench, rule, c.states);
          for (int count = 1; count <= 3; ++count) {
            UpdatePlan plan;
            plan.step.lr = 0.01, plan.step.count = count, plan.count = true;
            counted.op->Update(plan);
            plan.count = false;
            alone.op->Update(plan);
            for (std::size_t i = 0; i < alone.slots.size(); ++i) {
              const UpdateSlot &want = counted.slots[i], &got = alone.slots[i];
              CheckEqual(got.value, Bench::Get(want.value));
              if (want.state1) CheckEqual(got.state1, Bench::Get(want.state1));
              if (want.state2) CheckEqual(got.state2, Bench::Get(want.state2));
              if (want.state3) CheckEqual(got.state3, Bench::Get(want.state3));
            }
          }
        }
  }

  TEST_CASE("an update that a weight in few bits cannot hold is lost, but not on average") {
    for (const bool stochastic : {false, true}) {
      UpdateRule rule;
      rule.masters = {kBf16, stochastic};
      Bench bench;
      UpdateSlot slot;
      constexpr std::size_t kMany = 40000;
      slot.value = bench.Vector(Values(kMany, 1)), slot.gradient = bench.Vector(Values(kMany, 1));
      const auto op = bench->MakeUpdate(rule, {slot}, {});
      UpdatePlan plan;
      plan.step.lr = 0x1p-12, plan.count = true;  // bf16 has steps of 2^-8 below 1
      op->Update(plan);
      CHECK(op->Outcome().updated);
      double sum = 0;
      for (const float v : Bench::Get(slot.value)) sum += 1 - static_cast<double>(v);
      const std::int64_t lost = op->Stats()[0].underflow;
      if (!stochastic) CHECK(lost == static_cast<std::int64_t>(kMany));
      if (!stochastic) CHECK(sum == 0);
      if (stochastic) CHECK(lost < static_cast<std::int64_t>(kMany));
      if (stochastic) CHECK(sum / kMany == doctest::Approx(0x1p-12).epsilon(0.1));
    }
  }

  TEST_CASE("a step that is skipped counts nothing") {
    Bench bench;
    UpdateSlot slot;
    slot.value = bench.Vector(Values(9, 1));
    slot.gradient = bench.Vector(Values(9, std::numeric_limits<float>::infinity()));
    const auto op = bench->MakeUpdate(UpdateRule{}, {slot}, {});
    UpdatePlan plan;
    plan.step.lr = 1, plan.count = true;
    op->Update(plan);
    CHECK_FALSE(op->Outcome().updated);
    CHECK(op->Stats().empty());
  }

  TEST_CASE("running averages: torch's lerp, value by value") {
    Bench bench;
    AverageSlot slot;
    const Values start = Normal(kRoundedLength, 1, 1), value = Normal(kRoundedLength, 1, 2);
    slot.average = bench.Vector(start), slot.value = bench.Vector(value);
    const auto op = bench->MakeAverage({slot});
    Values want = start;
    for (const double keep : {0.999, 0.3, 0.5, 0.0}) {
      for (std::size_t i = 0; i < want.size(); ++i) {
        const float take = static_cast<float>(1 - keep), d = value[i] - want[i];
        want[i] = take < 0.5f ? want[i] + take * d : value[i] - d * static_cast<float>(keep);
      }
      op->Step(keep);
      bench->Synchronize();
      CheckEqual(slot.average, want);
    }
    CheckEqual(slot.average, value);
  }
}

}  // namespace ada::backend::test
