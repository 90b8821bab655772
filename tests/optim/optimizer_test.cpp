// The optimizer on a fake backend: trajectories recorded from torch.optim, clipping, skipped steps,
// state tensors and a restart from them.
#include "optim/optimizer.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>

#include "error.h"
#include "golden_table.h"
#include "optim/fake_backend.h"

namespace ada::optim {
namespace {

using backend::UpdateRule;
using testing::FakeBackend;
using testing::GoldenRow;
using testing::Number;

std::vector<float> Bits(const std::string& text) {
  std::vector<float> values;
  for (const std::string& word : testing::Words(text)) {
    const auto bits = static_cast<std::uint32_t>(std::stoul(word, nullptr, 16));
    std::memcpy(&values.emplace_back(), &bits, sizeof bits);
  }
  return values;
}

UpdateRule RuleOf(const GoldenRow& row) {
  const std::map<std::string, UpdateRule::Kind> kinds = {{"sgd", UpdateRule::Kind::kSgd},
                                                         {"adam", UpdateRule::Kind::kAdam},
                                                         {"adamw", UpdateRule::Kind::kAdamW}};
  UpdateRule rule;
  rule.kind = kinds.at(row.at("kind"));
  rule.momentum = Number(row, "momentum");
  rule.nesterov = row.at("nesterov") == "1";
  rule.weight_decay = Number(row, "weight_decay");
  rule.beta1 = Number(row, "beta1");
  rule.beta2 = Number(row, "beta2");
  rule.epsilon = Number(row, "epsilon");
  return rule;
}

UpdateRule Sgd(double momentum = 0, double weight_decay = 0) {
  UpdateRule rule;
  rule.momentum = momentum;
  rule.weight_decay = weight_decay;
  return rule;
}

std::vector<float> Values(const Tensor& tensor) {
  return {tensor.f32(), tensor.f32() + tensor.shape.numel()};
}

backend::UpdateOutcome Step(Optimizer& optimizer, double lr) {
  backend::UpdatePlan plan;
  plan.step.lr = lr;
  optimizer.Update(plan);
  return optimizer.Outcome();
}

// Ours against torch's weights after one step. torch takes the norm for clipping in fp32, ours is
// double: the factors are an ulp apart, counted in ulps of the largest weight on the way, because a
// weight may pass through 0.
void CompareWeights(const std::vector<float>& ours, const std::vector<float>& torch, bool clips,
                    std::vector<float>& largest) {
  REQUIRE(ours.size() == torch.size());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    CAPTURE(i);
    largest[i] = std::max(largest[i], std::fabs(torch[i]));
    const float ulp = std::nextafter(largest[i], INFINITY) - largest[i];
    CHECK(std::fabs(ours[i] - torch[i]) <= (clips ? 2 * ulp : 0));
  }
}

// One recorded run; `gradients` by step, -1: the weights to start from.
void ReplayRun(const std::vector<GoldenRow>& rows,
               const std::map<int, std::vector<float>>& gradients) {
  FakeBackend backend;
  const Tensor value = backend.Make(gradients.at(-1));
  const Tensor gradient = backend.Make(gradients.at(0));
  const double clip_norm = Number(rows[0], "clip_norm");
  Optimizer optimizer(backend, RuleOf(rows[0]), {{"w", value, gradient, true}}, clip_norm);
  std::vector<float> largest(gradients.at(-1).size(), 0);
  for (const GoldenRow& row : rows) {
    CAPTURE(row.at("step"));
    const std::vector<float>& now = gradients.at(std::stoi(row.at("step")));
    backend.Upload(gradient.data, now.data(), gradient.bytes());
    CHECK(Step(optimizer, Number(row, "lr")).updated);
    CompareWeights(Values(value), Bits(row.at("values")), clip_norm > 0, largest);
  }
  CHECK(optimizer.updates() == 20);
}

TEST_SUITE("cpu") {
  TEST_CASE("recorded trajectories of torch.optim, 20 steps each") {
    std::map<int, std::vector<float>> gradients;
    std::map<int, std::vector<GoldenRow>> runs;
    for (const GoldenRow& row : testing::ReadGolden("optim/updates.csv").rows) {
      const int run = std::stoi(row.at("run"));
      if (run < 0) gradients[std::stoi(row.at("step"))] = Bits(row.at("values"));
      if (run >= 0) runs[run].push_back(row);
    }
    CHECK(runs.size() == 10);
    for (const auto& [run, rows] : runs) {
      CAPTURE(run);
      REQUIRE(rows.size() == 20);
      ReplayRun(rows, gradients);
    }
  }

  TEST_CASE("clipping by the global norm") {
    struct Row {
      double max_norm, factor;
    };
    // Gradients (3, 0) and (0, 4): norm 5.
    const Row rows[] = {{0, 1}, {10, 1}, {5, 5 / (5 + 1e-6)}, {2.5, 2.5 / (5 + 1e-6)}, {5.1, 1}};
    for (const Row& row : rows) {
      CAPTURE(row.max_norm);
      CHECK(backend::ClipFactor(5, row.max_norm) == doctest::Approx(row.factor).epsilon(1e-15));
      FakeBackend backend;
      const Tensor a = backend.Make({1, 1}), b = backend.Make({1, 1});
      Optimizer optimizer(backend, Sgd(),
                          {{"a", a, backend.Make({3, 0})}, {"b", b, backend.Make({0, 4})}},
                          row.max_norm);
      const backend::UpdateOutcome outcome = Step(optimizer, 0.1);
      CHECK(outcome.norm == 5);
      CHECK(outcome.clipped == (row.factor < 1));
      CHECK(Values(a)[0] == doctest::Approx(1 - 0.3 * row.factor).epsilon(1e-6));
      CHECK(Values(a)[1] == 1);
      CHECK(Values(b)[1] == doctest::Approx(1 - 0.4 * row.factor).epsilon(1e-6));
    }
  }

  TEST_CASE("a gradient that is not finite changes nothing") {
    for (const float bad : {INFINITY, -INFINITY, NAN}) {
      FakeBackend backend;
      const Tensor value = backend.Make({1, 2}), gradient = backend.Make({0.5f, 0.5f});
      Optimizer optimizer(backend, Sgd(0.9), {{"w", value, gradient}}, 1);
      CHECK(Step(optimizer, 0.1).updated);
      const std::vector<float> before = Values(value);
      const std::vector<float> momentum = Values(optimizer.state()[0].tensor);
      gradient.f32()[1] = bad;
      const backend::UpdateOutcome outcome = Step(optimizer, 0.1);
      CHECK(outcome.overflow);
      CHECK_FALSE(std::isfinite(outcome.norm));
      CHECK_FALSE(outcome.updated);
      CHECK(Values(value) == before);
      CHECK(Values(optimizer.state()[0].tensor) == momentum);
      CHECK(optimizer.updates() == 1);
    }
  }

  TEST_CASE("sanitized gradients are updated with, clipped by their new norm") {
    FakeBackend backend;
    const Tensor value = backend.Make({0, 0, 0, 0});
    Optimizer optimizer(backend, Sgd(),
                        {{"w", value, backend.Make({NAN, INFINITY, -INFINITY, 0.5f})}},
                        2 * std::sqrt(72.25));
    backend::UpdatePlan plan;
    plan.step.lr = 1, plan.largest = true;
    plan.on_overflow = backend::UpdatePlan::OnOverflow::kSanitize;
    for (const float bad : {0.0f, -1.0f, INFINITY, NAN}) {
      plan.sanitize_to = bad;
      CHECK_THROWS_AS(optimizer.Update(plan), InternalError);
    }
    plan.sanitize_to = 6;
    optimizer.Update(plan);
    const backend::UpdateOutcome outcome = optimizer.Outcome();
    CHECK(outcome.overflow);
    CHECK(outcome.updated);
    CHECK_FALSE(outcome.clipped);
    CHECK(std::isnan(outcome.largest));
    CHECK(Values(value) == std::vector<float>{0, -6, 6, -0.5f});
    optimizer.Update(plan);
    const backend::UpdateOutcome cleaned = optimizer.Outcome();
    CHECK(cleaned.norm == std::sqrt(72.25));
    CHECK(cleaned.largest == 6);
  }

  TEST_CASE("a watched rounding that left its format changes nothing and is no update") {
    FakeBackend backend;
    const Tensor value = backend.Make({1});
    TensorStats stats;
    Optimizer optimizer(backend, Sgd(), {{"w", value, backend.Make({1})}}, 0, {{&stats, 8}});
    for (const float largest : {9.0f, NAN, 8.0f}) {
      stats.max_abs = largest;
      optimizer.CheckWatched();
      const backend::UpdateOutcome outcome = Step(optimizer, 0.5);
      CHECK(outcome.watched == (largest != 8));
      CHECK(outcome.updated == (largest == 8));
      CHECK(optimizer.updates() == (largest == 8 ? 1 : 0));
      CHECK(Values(value)[0] == (largest == 8 ? 0.5f : 1));
    }
  }

  TEST_CASE("each call has one outcome") {
    FakeBackend backend;
    Optimizer optimizer(backend, Sgd(), {{"w", backend.Make({1}), backend.Make({1})}}, 0);
    CHECK_THROWS_AS(optimizer.Outcome(), InternalError);
    optimizer.Update({});
    CHECK_THROWS_AS(optimizer.Update({}), InternalError);
    CHECK(optimizer.Outcome().updated);
    CHECK_THROWS_AS(optimizer.Outcome(), InternalError);
    CHECK(optimizer.updates() == 1);
  }

  TEST_CASE("state tensors: names, order, shape, zeroed") {
    struct Row {
      UpdateRule rule;
      std::vector<std::string> names;
    };
    UpdateRule adam, adamw;
    adam.kind = UpdateRule::Kind::kAdam;
    adamw.kind = UpdateRule::Kind::kAdamW;
    const std::vector<std::string> moments = {
        "optimizer.conv1.weight.exp_avg", "optimizer.conv1.weight.exp_avg_sq",
        "optimizer.fc.bias.exp_avg", "optimizer.fc.bias.exp_avg_sq"};
    const Row rows[] = {
        {Sgd(), {}},
        {Sgd(0.9), {"optimizer.conv1.weight.momentum", "optimizer.fc.bias.momentum"}},
        {adam, moments},
        {adamw, moments}};
    for (const Row& row : rows) {
      FakeBackend backend;
      const std::vector<OptimizedParameter> parameters = {
          {"conv1.weight", backend.Make({1, 2, 3}), backend.Make({1, 2, 3})},
          {"fc.bias", backend.Make({1}), backend.Make({1})}};
      const std::size_t before = backend.allocated_bytes();
      const Optimizer optimizer(backend, row.rule, parameters, 0);
      REQUIRE(optimizer.state().size() == row.names.size());
      CHECK(backend.allocated_bytes() - before == row.names.size() / 2 * 16);
      for (std::size_t i = 0; i < row.names.size(); ++i) {
        CHECK(optimizer.state()[i].name == row.names[i]);
        const std::vector<float> values = Values(optimizer.state()[i].tensor);
        CHECK(std::count(values.begin(), values.end(), 0.0f) == static_cast<int>(values.size()));
      }
      CHECK(optimizer.updates() == 0);
    }
  }

  TEST_CASE("decay flag: only flagged parameters shrink") {
    UpdateRule adamw;
    adamw.kind = UpdateRule::Kind::kAdamW;
    adamw.weight_decay = 0.1;
    for (const UpdateRule& rule : {Sgd(0, 0.1), Sgd(0.9, 0.1), adamw}) {
      FakeBackend backend;
      const Tensor a = backend.Make({2}), b = backend.Make({2});
      Optimizer optimizer(backend, rule,
                          {{"a", a, backend.Make({0}), true}, {"b", b, backend.Make({0}), false}},
                          0);
      Step(optimizer, 0.5);
      CHECK(Values(a)[0] == doctest::Approx(2 * (1 - 0.5 * 0.1)).epsilon(1e-6));
      CHECK(Values(b)[0] == 2);
    }
  }

  TEST_CASE("restarted from its state tensors and count it goes on to the same bits") {
    UpdateRule adam;
    adam.kind = UpdateRule::Kind::kAdam;
    for (const UpdateRule& rule : {Sgd(), Sgd(0.9, 1e-3), adam}) {
      FakeBackend backend;
      const std::vector<float> start = {1, -2, 0.5f};
      const Tensor gradient = backend.Make({0, 0, 0});
      const Tensor straight = backend.Make(start), restarted = backend.Make(start);
      Optimizer whole(backend, rule, {{"w", straight, gradient}}, 1);
      auto part = std::make_unique<Optimizer>(
          backend, rule, std::vector<OptimizedParameter>{{"w", restarted, gradient}}, 1);
      for (int step = 0; step < 12; ++step) {
        for (int i = 0; i < 3; ++i) gradient.f32()[i] = std::sin(3.0f * step + i);
        auto next = std::make_unique<Optimizer>(
            backend, rule, std::vector<OptimizedParameter>{{"w", restarted, gradient}}, 1);
        next->set_updates(part->updates());
        for (std::size_t i = 0; i < part->state().size(); ++i) {
          const Tensor& from = part->state()[i].tensor;
          backend.Upload(next->state()[i].tensor.data, from.data, from.bytes());
        }
        part = std::move(next);
        Step(whole, 0.05);
        Step(*part, 0.05);
        CHECK(Values(straight) == Values(restarted));
      }
    }
  }

  TEST_CASE("parameters that cannot be updated are bugs") {
    FakeBackend backend;
    const Tensor two = backend.Make({1, 2}), three = backend.Make({1, 2, 3});
    Tensor half = two;
    half.storage = Storage::kF16;
    for (const auto& [value, gradient] :
         {std::pair(two, three), std::pair(two, Tensor{}), std::pair(half, two)}) {
      CHECK_THROWS_AS(Optimizer(backend, Sgd(), {{"w", value, gradient}}, 0), InternalError);
    }
  }
}

}  // namespace
}  // namespace ada::optim
