// LogMax: the recorded traces of OpenSeq2Seq (reference), what ours does otherwise, and restoring.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "error.h"
#include "golden_table.h"
#include "scaling/policies/policies.h"
#include "scaling/rules/state_text.h"

namespace ada::scaling {
namespace {

LogMaxParameters ParametersOf(const testing::GoldenTable& table) {
  LogMaxParameters p;
  p.reference = true;
  for (const std::string& comment : table.comments) {
    if (comment.rfind("params: ", 0) != 0) continue;
    for (const std::string& word : testing::Words(comment.substr(8))) {
      const std::size_t equals = word.find('=');
      const std::string name = word.substr(0, equals);
      const double value = std::stod(word.substr(equals + 1));
      if (name == "scale_min") p.min_scale = value;
      if (name == "scale_max") p.max_scale = value;
      if (name == "beta1") p.beta1 = value;
      if (name == "beta2") p.beta2 = value;
      if (name == "overflow_std_dev") p.overflow_std_dev = value;
      if (name == "log_max") p.log_max = value;
    }
  }
  return p;
}

StepOutcome Of(double amax) {
  StepOutcome attempt;
  attempt.amax = amax;
  attempt.overflow = !std::isfinite(amax);
  return attempt;
}

// |a / b - 1|, 0 for two NaN or two equal values.
double Difference(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  return std::isfinite(a) && std::isfinite(b) ? std::fabs(a / b - 1) : INFINITY;
}

TEST_SUITE("cpu") {
  TEST_CASE("reference: every row of every recorded trace of OpenSeq2Seq") {
    int traces = 0;
    std::size_t rows = 0;
    const std::string folder =
        std::string(ADA_SOURCE_DIR) + "/tests/golden/dynamic/openseq2seq_logmax";
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      const std::string file = entry.path().filename();
      CAPTURE(file);
      const testing::GoldenTable table = testing::ReadGolden("dynamic/openseq2seq_logmax/" + file);
      const auto policy = MakeLogMax(ParametersOf(table));
      for (const testing::GoldenRow& row : table.rows) {
        CAPTURE(row.at("step"));
        const StepOutcome attempt = Of(testing::Number(row, "amax"));
        const ScaleUpdate verdict = policy->Update(attempt);
        REQUIRE((verdict.action == Action::kSkip) == attempt.overflow);
        REQUIRE(verdict.error.empty());
        const double recorded = testing::Number(row, "scale_after");
        REQUIRE(Difference(verdict.after, recorded) <= 3e-5);  // the variance cancels
        ++rows;
      }
      ++traces;
    }
    CHECK(traces == 9);
    CHECK(rows == 4500);
  }

  TEST_CASE("one value: S = 2^log_max / amax, as there is no deviation yet") {
    LogMaxParameters p;
    p.max_scale = 0x1p40;
    for (const bool reference : {false, true}) {
      p.reference = reference;
      const auto policy = MakeLogMax(p);
      CHECK(policy->Scale() == 1);
      const ScaleUpdate verdict = policy->Update(Of(0.25));
      CHECK(verdict.before == 1);
      CHECK(Difference(verdict.after, 0x1p18) < 1e-4);
      CHECK(verdict.reason == "largest gradient 0.25");
    }
    p.log_max = 4;  // ours; the original's formula keeps 16
    p.reference = false;
    CHECK(Difference(MakeLogMax(p)->Update(Of(0.25)).after, 0x1p6) < 1e-4);
    p.reference = true;
    CHECK(Difference(MakeLogMax(p)->Update(Of(0.25)).after, 0x1p18) < 1e-4);
  }

  TEST_CASE("bounds") {
    LogMaxParameters p;
    p.min_scale = 8;
    p.max_scale = 64;
    CHECK(MakeLogMax(p)->Update(Of(1e-9)).after == 64);
    CHECK(MakeLogMax(p)->Update(Of(1e9)).after == 8);
    p.min_scale = 128;
    CHECK_THROWS_WITH_AS(MakeLogMax(p), "scaling.min_scale: 128, expected at most max_scale, 64",
                         ConfigError);
    p = {};
    p.beta2 = 1;
    CHECK_THROWS_WITH_AS(MakeLogMax(p), "scaling.beta2: 1, expected a number between 0 and 1",
                         ConfigError);
    p.beta2 = 1 - 1e-9;  // 1 in fp32, where it would make 0 / 0
    CHECK_THROWS_AS(MakeLogMax(p), ConfigError);
    p.beta1 = 0, p.beta2 = 1 - 0x1p-24;
    CHECK(std::isfinite(MakeLogMax(p)->Update(Of(1e-9)).after));
  }

  TEST_CASE("an overflow enters as log_max, and the scale recovers") {
    for (const double amax : std::vector<double>{INFINITY, NAN, 1e39}) {
      LogMaxParameters wide;
      wide.max_scale = 0x1p40;
      const auto policy = MakeLogMax(wide);
      for (int i = 0; i < 300; ++i) policy->Update(Of(0.125 + 0.001 * (i % 3)));
      const double steady = policy->Scale();
      const ScaleUpdate verdict = policy->Update(Of(amax));
      CHECK(verdict.action == Action::kSkip);
      CHECK(verdict.after < verdict.before);
      CHECK(verdict.reason == "overflow");
      for (int i = 0; i < 6000; ++i) policy->Update(Of(0.125 + 0.001 * (i % 3)));
      CHECK(policy->Scale() > steady / 2);
    }
    LogMaxParameters p;
    p.reference = true;  // the original enters 65536: pinned at 1
    const auto policy = MakeLogMax(p);
    for (int i = 0; i < 300; ++i) policy->Update(Of(0.125 + 0.001 * (i % 3)));
    policy->Update(Of(INFINITY));
    for (int i = 0; i < 6000; ++i) policy->Update(Of(0.125 + 0.001 * (i % 3)));
    CHECK(policy->Scale() == 1);
  }

  TEST_CASE("an overflow that amax does not show") {
    const auto policy = MakeLogMax({});
    StepOutcome attempt = Of(0.5);
    attempt.overflow = true;
    CHECK(policy->Update(attempt).action == Action::kSkip);
    CHECK(policy->RequiredStats().amax);
  }

  TEST_CASE("gradients of zero are left out; the original never recovers from them") {
    const auto policy = MakeLogMax({});
    for (int i = 0; i < 10; ++i) policy->Update(Of(100 + i));
    const StateMap before = policy->SaveState();
    const ScaleUpdate verdict = policy->Update(Of(0));
    CHECK(verdict.action == Action::kUpdate);
    CHECK(verdict.after == verdict.before);
    CHECK(verdict.reason.empty());
    CHECK(policy->SaveState() == before);
    LogMaxParameters p;
    p.reference = true;
    const auto reference = MakeLogMax(p);
    reference->Update(Of(1));
    reference->Update(Of(0));
    reference->Update(Of(1));
    CHECK(std::isnan(reference->Scale()));
    CHECK(reference->Update(Of(1)).reason.empty());
  }

  TEST_CASE("random gradients: bounds, and a restored policy goes on alike") {
    std::mt19937 random(7);
    for (int pattern = 0; pattern < 20; ++pattern) {
      LogMaxParameters p;
      p.reference = pattern % 2 == 1;
      p.min_scale = 4;
      p.max_scale = 0x1p20;
      auto straight = MakeLogMax(p), restored = MakeLogMax(p);
      for (int step = 0; step < 200; ++step) {
        CAPTURE(pattern);
        CAPTURE(step);
        double amax =
            std::ldexp(1 + (random() % 1000) / 1000.0, static_cast<int>(random() % 12) - 9);
        if (random() % 50 == 0) amax = INFINITY;
        if (random() % 100 == 0) amax = 0;
        const ScaleUpdate verdict = straight->Update(Of(amax));
        auto next = MakeLogMax(p);
        next->LoadState(restored->SaveState());
        restored = std::move(next);
        REQUIRE(Difference(restored->Update(Of(amax)).after, verdict.after) == 0);
        REQUIRE(restored->SaveState() == straight->SaveState());
        const bool spoilt = p.reference && std::isnan(verdict.after);
        REQUIRE((spoilt || (verdict.after >= 4 && verdict.after <= 0x1p20)));
      }
    }
  }

  TEST_CASE("states that do not fit") {
    const auto policy = MakeLogMax({});
    const StateMap good = policy->SaveState();
    for (const char* key : {"scale", "mean", "slow_mean", "slow_square", "weight", "slow_weight"}) {
      CAPTURE(key);
      for (const char* bad : {"inf", "nan", "0x1.0000000000001p+3", "", "x"}) {
        StateMap state = good;
        state[key] = bad;
        CHECK_THROWS_AS(policy->LoadState(state), DataError);
      }
      StateMap state = good;
      state.erase(key);
      CHECK_THROWS_AS(policy->LoadState(state), DataError);
      CHECK(policy->SaveState() == good);
    }
  }
}

}  // namespace
}  // namespace ada::scaling
