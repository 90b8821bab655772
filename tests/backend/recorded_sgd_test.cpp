// Twenty steps of SGD on a weight and a bias as chainer and torch made them: every kind of
// momentum, a rate that changes, parameter groups (tests/golden/schedules).
#include <doctest/doctest.h>

#include <map>

#include "backend/op_bench.h"
#include "golden_table.h"
#include "io/tensor_files/safetensors.h"

namespace ada::backend::test {
namespace {

using RecordedRows = std::vector<testing::GoldenRow>;

Values Part(const Values& all, std::size_t step, std::size_t n) {
  return {all.begin() + static_cast<std::ptrdiff_t>(step * n),
          all.begin() + static_cast<std::ptrdiff_t>((step + 1) * n)};
}

double Or(const testing::GoldenRow& row, const char* column, double otherwise) {
  return row.contains(column) ? testing::Number(row, column) : otherwise;
}

void CheckNearAll(const Tensor& ours, const Values& recorded) {
  const Values values = Bench::Get(ours);
  REQUIRE(values.size() == recorded.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    CHECK(static_cast<double>(values[i]) ==
          doctest::Approx(static_cast<double>(recorded[i])).epsilon(1e-6));
}

// One case. The factor of the bias's gradient is one of its rate here: powers of two change no bit.
void ReplayCase(const SafetensorsFile& file, const RecordedRows& rows, bool chainer) {
  const std::string name = rows[0].at("case");
  UpdateRule rule;
  rule.momentum = testing::Number(rows[0], "momentum");
  rule.nesterov = Or(rows[0], "nesterov", 0) != 0;
  rule.dampening = Or(rows[0], "dampening", 0);
  rule.weight_decay = testing::Number(rows[0], "weight_decay_w");
  if (chainer) rule.velocity = UpdateRule::Velocity::kSteps;
  const double factor = Or(rows[0], "gradient_scaling_b", Or(rows[0], "gradient_factor_b", 1));

  Bench bench;
  std::vector<UpdateSlot> slots(2);
  for (int i = 0; i < 2; ++i) {
    slots[i].value = bench.Vector(file.ReadF32(i == 0 ? "w0" : "b0"));
    slots[i].gradient = bench.Vector(Values(6));
    if (rule.momentum != 0) slots[i].state1 = bench.Vector(Values(6));
  }
  slots[1].decay = 0, slots[1].lr = factor;
  const auto op = bench->MakeUpdate(rule, slots, {});
  const Values gw = file.ReadF32("grads_w"), gb = file.ReadF32("grads_b");
  const Values w = file.ReadF32(name + ".w"), b = file.ReadF32(name + ".b");
  for (std::size_t step = 0; step < rows.size(); ++step) {
    CAPTURE(step);
    Bench::Set(slots[0].gradient, Part(gw, step, 6));
    Bench::Set(slots[1].gradient, Part(gb, step, 6));
    UpdatePlan plan;
    plan.step.lr = testing::Number(rows[step], "lr");
    plan.step.count = static_cast<std::int64_t>(step) + 1;
    op->Update(plan);
    CHECK(op->Outcome().updated);
    CheckNearAll(slots[0].value, Part(w, step, 6));
    CheckNearAll(slots[1].value, Part(b, step, 6));
  }
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("recorded steps of SGD: chainer's momentum, torch's, Nesterov's, dampening, none") {
    for (const bool chainer : {true, false}) {
      const std::string name = chainer ? "chainer_momentum_sgd" : "torch_sgd";
      const auto file =
          SafetensorsFile::Open(ADA_SOURCE_DIR "/tests/golden/schedules/" + name + ".safetensors");
      std::map<std::string, RecordedRows> cases;
      for (const auto& row : testing::ReadGolden("schedules/" + name + ".csv").rows)
        cases[row.at("case")].push_back(row);
      CHECK(cases.size() == (chainer ? 3 : 5));
      for (const auto& [what, rows] : cases) {
        CAPTURE(what);
        CHECK(rows.size() == 20);
        ReplayCase(file, rows, chainer);
      }
    }
  }
}

}  // namespace ada::backend::test
