// The update decided where the gradients are: against the CPU's bit for bit, against
// update_rules.h, and what becomes of gradients that are not finite.
#include <doctest/doctest.h>

#include "backend/update_rules.h"
#include "cuda/on_both.h"

namespace ada::backend::test {
namespace {

using Method = UpdateRule::Kind;

// Around the lengths at which work is cut: threads of a block, segments of 2,048 and 16,384.
const std::vector<std::size_t> kLengths = {1, 15, 256, 432, 2048, 2049, 16384, 40001};

struct Rule {
  std::string name;
  UpdateRule rule;
  int states;
};
std::vector<Rule> AllRules() {
  const auto make = [](Method kind, double momentum, bool nesterov, double decay) {
    UpdateRule rule;
    rule.kind = kind, rule.momentum = momentum, rule.nesterov = nesterov;
    rule.weight_decay = decay;
    return rule;
  };
  return {{"sgd", make(Method::kSgd, 0, false, 0), 0},
          {"sgd, decay", make(Method::kSgd, 0, false, 1e-2), 0},
          {"momentum", make(Method::kSgd, 0.9, false, 1e-4), 1},
          {"nesterov", make(Method::kSgd, 0.9, true, 1e-2), 1},
          {"adam", make(Method::kAdam, 0, false, 0), 2},
          {"adam, decay", make(Method::kAdam, 0, false, 1e-2), 2},
          {"adamw", make(Method::kAdamW, 0, false, 1e-2), 2}};
}

struct Parameters {
  Parameters(Lab& lab, int states) {
    for (std::size_t i = 0; i < kLengths.size(); ++i) {
      UpdateSlot slot;
      slot.value = lab.Vector(Normal(kLengths[i], 0.1, 10 * i));
      slot.gradient = lab.Vector(Normal(kLengths[i], 0.01, 10 * i + 1));
      if (states > 0) slot.state1 = lab.Vector(Values(kLengths[i]));
      if (states > 1) slot.state2 = lab.Vector(Values(kLengths[i]));
      slot.decay = i % 2 == 0;
      slots.push_back(slot);
    }
  }
  void Write(const Lab& lab, Findings& findings) const {
    for (const UpdateSlot& slot : slots)
      for (const Tensor* t : {&slot.value, &slot.gradient, &slot.state1, &slot.state2})
        if (*t) findings.Add("slot of " + std::to_string(t->shape.numel()), lab, *t);
  }
  std::vector<UpdateSlot> slots;
};

void Write(const UpdateOutcome& outcome, Findings& findings) {
  findings.Numbers("norm", {outcome.norm}, 1e-14);
  findings.Numbers("outcome", {static_cast<double>(outcome.largest), outcome.overflow ? 1.0 : 0.0,
                               outcome.watched ? 1.0 : 0.0, outcome.updated ? 1.0 : 0.0,
                               outcome.clipped ? 1.0 : 0.0});
}

// The scalar rules, value by value.
void UpdateNaively(const UpdateRule& rule, const UpdateStep& step, const UpdateSlot& slot,
                   Values& v, const Values& g, Values& a, Values& b) {
  const UpdateScalars s = MakeUpdateScalars(rule, step, 1, slot.decay);
  for (std::size_t i = 0; i < v.size(); ++i)
    v[i] = rule.kind != Method::kSgd ? AdamUpdate(s, v[i], g[i], a[i], b[i])
           : slot.state1             ? SgdMomentumUpdate(s, v[i], g[i], a[i])
                                     : SgdUpdate(s, v[i], g[i]);
}

// A finite value of a gradient replaced wherever gradients begin and end.
void Spoil(Lab& lab, const UpdateSlot& slot, bool last, float bad) {
  Values g = lab.Get(slot.gradient);
  (last ? g.back() : g.front()) = bad;
  lab.Set(slot.gradient, g);
}

}  // namespace

TEST_SUITE(ADA_SUITE) {
  TEST_CASE("update: every rule, several updates, rates and counts that change, clipping") {
    for (const Rule& rule : AllRules()) {
      CAPTURE(rule.name);
      OnBoth([&](Lab& lab, Findings& findings) {
        const Parameters parameters(lab, rule.states);
        const auto op = lab->MakeUpdate(rule.rule, parameters.slots, {});
        for (int count = 1; count <= 4; ++count) {
          UpdatePlan plan;
          plan.step.lr = 0.1 / count, plan.step.count = count;
          plan.clip_norm = count == 3 ? 0.5 : count == 4 ? 1e6 : 0;
          plan.largest = count % 2 == 0;
          op->Update(plan);
          Write(op->Outcome(), findings);
        }
        parameters.Write(lab, findings);
      });
    }
  }

  TEST_CASE("update: by the scalar rules, the outcome asked for once at the end") {
    for (const Rule& rule : AllRules()) {
      CAPTURE(rule.name);
      Lab lab(MakeBackendUnderTest());
      const Parameters parameters(lab, rule.states);
      const auto op = lab->MakeUpdate(rule.rule, parameters.slots, {});
      UpdatePlan plans[3];
      for (int i = 0; i < 3; ++i) {
        plans[i].step.lr = 0.1 / (i + 1), plans[i].step.count = i + 1;
        op->Update(plans[i]);
      }
      CHECK(op->Outcome().updated);
      for (std::size_t k = 0; k < kLengths.size(); ++k) {
        Values v = Normal(kLengths[k], 0.1, 10 * k), a(kLengths[k]), b(kLengths[k]);
        const Values g = Normal(kLengths[k], 0.01, 10 * k + 1);
        for (const UpdatePlan& plan : plans)
          UpdateNaively(rule.rule, plan.step, parameters.slots[k], v, g, a, b);
        CHECK(FirstDifference(lab.Get(parameters.slots[k].value), v) == -1);
      }
    }
  }

  TEST_CASE("update: the norm is of all gradients together, in double, whatever their range") {
    Lab lab(MakeBackendUnderTest());
    double sum = 0;
    const Parameters parameters(lab, 0);
    for (const UpdateSlot& slot : parameters.slots)
      for (const float g : lab.Get(slot.gradient)) sum += std::pow(static_cast<double>(g), 2);
    const auto op = lab->MakeUpdate(UpdateRule{}, parameters.slots, {});
    op->Update(UpdatePlan{});
    CHECK(op->Outcome().norm == doctest::Approx(std::sqrt(sum)).epsilon(1e-12));
    for (const float g : {1e30f, 1e-30f}) {
      UpdateSlot slot;
      slot.value = lab.Vector(Values(100)), slot.gradient = lab.Vector(Values(100, g));
      const auto one = lab->MakeUpdate(UpdateRule{}, {slot}, {});
      one->Update(UpdatePlan{});
      CHECK(one->Outcome().norm ==
            doctest::Approx(10 * static_cast<double>(g)).epsilon(1e-12).scale(1e-40));
    }
  }

  TEST_CASE("update: one value that is not finite, wherever it is: nothing changes") {
    const float inf = std::numeric_limits<float>::infinity();
    for (const float bad : {inf, -inf, std::nanf("")})
      for (std::size_t slot = 0; slot < kLengths.size(); ++slot)
        OnBoth([&](Lab& lab, Findings& findings) {
          const Parameters parameters(lab, 1);
          UpdateRule rule;
          rule.momentum = 0.9;
          const auto op = lab->MakeUpdate(rule, parameters.slots, {});
          UpdatePlan plan;
          plan.step.lr = 0.1, plan.largest = true;
          Spoil(lab, parameters.slots[slot], slot % 2 == 0, bad);
          op->Update(plan);
          const UpdateOutcome outcome = op->Outcome();
          CHECK(outcome.overflow);
          CHECK_FALSE(outcome.updated);
          CHECK(std::isnan(outcome.largest) == std::isnan(bad));
          Write(outcome, findings);
          parameters.Write(lab, findings);
          Spoil(lab, parameters.slots[slot], slot % 2 == 0, 0);
          op->Update(plan);
          CHECK(op->Outcome().updated);
          Write(op->Outcome(), findings);
          parameters.Write(lab, findings);
        });
  }

  TEST_CASE(
      "update: sanitize: NaN become 0, what is larger the limit with its sign, then clipped") {
    const float inf = std::numeric_limits<float>::infinity();
    for (const float limit : {0.01f, 65504.0f})
      for (const double clip : {0.0, 0.7})
        OnBoth([&](Lab& lab, Findings& findings) {
          const Parameters parameters(lab, 2);
          UpdateRule rule;
          rule.kind = Method::kAdam;
          const auto op = lab->MakeUpdate(rule, parameters.slots, {});
          UpdatePlan plan;
          plan.step.lr = 0.1, plan.clip_norm = clip, plan.largest = true;
          plan.on_overflow = UpdatePlan::OnOverflow::kSanitize, plan.sanitize_to = limit;
          for (const bool spoilt : {false, true, false}) {
            for (const UpdateSlot& slot : parameters.slots) {
              Values g = lab.Get(slot.gradient);
              const float bad[] = {inf,   -inf,   std::nanf(""), -std::nanf(""),
                                   70000, -70000, 65504,         -0.0f};
              if (spoilt)
                for (std::size_t i = 0; i < g.size(); i += 3) g[i] = bad[i / 3 % 8];
              lab.Set(slot.gradient, g);
            }
            op->Update(plan);
            const UpdateOutcome outcome = op->Outcome();
            CHECK(outcome.overflow == spoilt);
            CHECK(outcome.updated);
            Write(outcome, findings);
            parameters.Write(lab, findings);
          }
        });
  }

  TEST_CASE("update: watched roundings of several passes, one of which left its format or none") {
    const float inf = std::numeric_limits<float>::infinity();
    for (const int bad : {-1, 0, 255, 256, 599})  // more than a block has threads
      for (const float largest : {65520.0f, inf, std::nanf("")})
        OnBoth([&](Lab& lab, Findings& findings) {
          const Parameters parameters(lab, 0);
          std::vector<WatchedRounding> watched;
          for (int i = 0; i < 600; ++i) {
            TensorStats stats;
            stats.max_abs = i == bad ? largest : 65519.996f;
            watched.push_back({lab.Share(stats), 65519.996f});
          }
          const auto op = lab->MakeUpdate(UpdateRule{}, parameters.slots, watched);
          UpdatePlan plan;
          plan.step.lr = 0.1;
          for (const int looks : {2, 0, 1}) {
            for (int i = 0; i < looks; ++i) op->CheckWatched();
            op->Update(plan);
            const UpdateOutcome outcome = op->Outcome();
            CHECK(outcome.watched == (bad >= 0 && looks > 0));
            CHECK(outcome.updated == !outcome.watched);
            Write(outcome, findings);
            parameters.Write(lab, findings);
          }
        });
  }

  TEST_CASE("update: gradients may be mended, a watched rounding is not") {
    OnBoth([&](Lab& lab, Findings& findings) {
      const Parameters parameters(lab, 0);
      Spoil(lab, parameters.slots[3], true, std::numeric_limits<float>::infinity());
      TensorStats stats;
      stats.max_abs = 2;
      const auto op = lab->MakeUpdate(UpdateRule{}, parameters.slots, {{lab.Share(stats), 1}});
      UpdatePlan plan;
      plan.step.lr = 0.1;
      plan.on_overflow = UpdatePlan::OnOverflow::kSanitize, plan.sanitize_to = 1;
      op->CheckWatched();
      op->Update(plan);
      CHECK(op->Outcome().watched);
      CHECK_FALSE(op->Outcome().updated);
      for (const UpdateSlot& slot : parameters.slots) findings.Add("value", lab, slot.value);
    });
  }

  TEST_CASE("update: no parameters") {
    OnBoth([&](Lab& lab, Findings& findings) {
      const auto op = lab->MakeUpdate(UpdateRule{}, {}, {});
      UpdatePlan plan;
      plan.largest = true;
      op->Update(plan);
      Write(op->Outcome(), findings);
    });
  }
}

}  // namespace ada::backend::test
