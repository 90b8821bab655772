// The dynamic state machine: every transition as a table, all recorded traces of
// torch.amp.GradScaler, and save and restore at every step of random overflow patterns.
#include <doctest/doctest.h>

#include <cfloat>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "core/error.h"
#include "golden_table.h"
#include "scaling/policy.h"
#include "scaling/presets.h"

namespace ada::scaling {
namespace {

DynamicParameters Small(double start, int window) {
  DynamicParameters p = FindDynamicPreset("pytorch").parameters;
  p.init_scale = start;
  p.growth_interval = window;
  return p;
}

// "o" = overflow, "." = clean.
struct Transition {
  const char* what;
  DynamicParameters parameters;
  const char* attempts;
  std::vector<double> after;
};

std::vector<Transition> Transitions() {
  DynamicParameters odd = Small(1, 1), floor = Small(4, 2), ceiling = Small(16, 1),
                    outside = Small(1024, 1), below = Small(1, 2);
  odd.growth_factor = 1.5;
  odd.backoff_factor = 0.7;
  floor.min_scale = 1.5;
  ceiling.max_scale = 40;
  outside.max_scale = 256;
  below.min_scale = 8;
  const auto f = [](double x) { return static_cast<double>(static_cast<float>(x)); };
  return {
      {"grows when the window is full", Small(8, 3), "....", {8, 8, 16, 16}},
      {"counts afresh after growth", Small(8, 2), ".....", {8, 16, 16, 32, 32}},
      {"overflow halves", Small(8, 3), "o", {4}},
      {"overflows in a row halve each time", Small(8, 3), "ooo", {4, 2, 1}},
      {"overflow empties the window", Small(8, 3), "..o...", {8, 8, 4, 4, 4, 8}},
      {"overflow right after growth", Small(8, 2), "..o..", {8, 16, 8, 8, 16}},
      {"overflow with an empty window", Small(8, 2), "o..", {4, 4, 8}},
      {"window of one", Small(8, 1), ".o..", {16, 8, 16, 32}},
      {"falls below one", Small(1, 9), "oo", {0.5, 0.25}},
      {"growth to inf is refused, the window starts again",
       Small(0x1p127, 2),
       "....o..",
       {0x1p127, 0x1p127, 0x1p127, 0x1p127, 0x1p126, 0x1p126, 0x1p127}},
      {"reaches 0 and stays", Small(0x1p-148, 1), "oo..", {0x1p-149, 0, 0, 0}},
      {"factors are doubles, rounded once", odd, ".o", {1.5, f(1.5 * 0.7)}},
      {"floor", floor, "ooo..", {2, 1.5, 1.5, 1.5, 3}},
      {"ceiling", ceiling, "...o", {32, 40, 40, 20}},
      {"a start above the ceiling holds until growth", outside, ".o", {256, 128}},
      {"a start below the floor holds until overflow", below, ".o", {1, 8}},
  };
}

TEST_SUITE("cpu") {
  TEST_CASE("every transition") {
    for (const Transition& t : Transitions()) {
      CAPTURE(t.what);
      const auto policy = MakeDynamic(t.parameters);
      CHECK(policy->Scale() == t.parameters.init_scale);
      for (std::size_t i = 0; t.attempts[i] != '\0'; ++i) {
        CAPTURE(i);
        const double before = policy->Scale();
        const bool overflow = t.attempts[i] == 'o';
        const ScaleChange change = policy->Update(overflow);
        REQUIRE(i < t.after.size());
        CHECK(policy->Scale() == t.after[i]);
        CHECK(change.before == before);
        CHECK(change.after == t.after[i]);
        const std::string grown = std::to_string(t.parameters.growth_interval) + " clean steps";
        CHECK(change.reason == (before == t.after[i] ? "" : overflow ? "overflow" : grown));
      }
    }
  }

  TEST_CASE("recorded traces of torch.amp.GradScaler, every row") {
    int traces = 0, rows = 0;
    const std::string folder = std::string(ADA_SOURCE_DIR) + "/tests/golden/dynamic/pytorch";
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      const std::string file = entry.path().filename();
      CAPTURE(file);
      const testing::GoldenTable table = testing::ReadGolden("dynamic/pytorch/" + file);
      DynamicParameters p = FindDynamicPreset("pytorch").parameters;
      for (const std::string& comment : table.comments) {
        if (comment.rfind("params: ", 0) != 0) continue;
        for (const std::string& word : testing::Words(comment.substr(8))) {
          const double value = std::stod(word.substr(word.find('=') + 1));
          if (word.rfind("init_scale=", 0) == 0) p.init_scale = value;
          if (word.rfind("growth_factor=", 0) == 0) p.growth_factor = value;
          if (word.rfind("backoff_factor=", 0) == 0) p.backoff_factor = value;
          if (word.rfind("growth_interval=", 0) == 0) p.growth_interval = static_cast<int>(value);
        }
      }
      const auto policy = MakeDynamic(p);
      for (const testing::GoldenRow& row : table.rows) {
        CAPTURE(row.at("step"));
        REQUIRE(policy->Scale() == testing::Number(row, "scale"));
        policy->Update(row.at("overflow") == "1");
        REQUIRE(row.at("skipped") == row.at("overflow"));  // what the trainer does with it
        REQUIRE(policy->Scale() == testing::Number(row, "scale_after"));
        REQUIRE(policy->SaveState().at("growth_tracker") == row.at("growth_tracker"));
        ++rows;
      }
      ++traces;
    }
    CHECK(traces == 11);
    CHECK(rows == 8580);
  }

  TEST_CASE("random overflows: save and restore at any step changes nothing") {
    std::mt19937 random(5);
    for (int pattern = 0; pattern < 60; ++pattern) {
      DynamicParameters p = Small(std::ldexp(1.0, static_cast<int>(random() % 40) - 10),
                                  1 + static_cast<int>(random() % 9));
      p.backoff_factor = pattern % 2 ? 0.5 : 0.7;
      p.growth_factor = pattern % 3 ? 2 : 1.3;
      const unsigned one_in = 2 + random() % 12;
      auto straight = MakeDynamic(p), restored = MakeDynamic(p);
      for (int step = 0; step < 300; ++step) {
        CAPTURE(pattern);
        CAPTURE(step);
        const bool overflow = random() % one_in == 0;
        straight->Update(overflow);
        auto next = MakeDynamic(p);
        next->LoadState(restored->SaveState());
        restored = std::move(next);
        const ScaleChange change = restored->Update(overflow);
        REQUIRE(restored->Scale() == straight->Scale());
        REQUIRE(restored->SaveState() == straight->SaveState());
        // Invariants: never up on overflow, never down on a clean step, always fp32 and finite.
        REQUIRE((overflow ? change.after <= change.before : change.after >= change.before));
        REQUIRE(static_cast<float>(change.after) == change.after);
        REQUIRE(change.after <= FLT_MAX);
      }
    }
  }

  TEST_CASE("states that do not fit are refused") {
    const auto policy = MakeDynamic(Small(8, 4));
    const StateMap states[] = {{},
                               {{"scale", "0x1p+3"}},
                               {{"scale", "0x1p+3"}, {"growth_tracker", "0"}, {"more", "1"}},
                               {{"scale", "eight"}, {"growth_tracker", "0"}},
                               {{"scale", ""}, {"growth_tracker", "0"}},
                               {{"scale", "0x1p+3 "}, {"growth_tracker", "0"}},
                               {{"scale", "inf"}, {"growth_tracker", "0"}},
                               {{"scale", "-0x1p+3"}, {"growth_tracker", "0"}},
                               {{"scale", "0x1.0000000000001p+3"}, {"growth_tracker", "0"}},
                               {{"scale", "0x1p+3"}, {"growth_tracker", "4"}},
                               {{"scale", "0x1p+3"}, {"growth_tracker", "-1"}},
                               {{"scale", "0x1p+3"}, {"growth_tracker", "1.5"}}};
    for (const StateMap& state : states) {
      CHECK_THROWS_AS(policy->LoadState(state), DataError);
      CHECK(policy->Scale() == 8);
    }
  }

  TEST_CASE("layers under dynamic pass S on") {
    const LayerRule rule = MakeDynamic({})->RuleFor({"conv1", 9, 9, 0x1p-24, 65504});
    CHECK(rule.method == LayerMethod::kPass);
    CHECK(rule.u_max == 65504);
  }
}

}  // namespace
}  // namespace ada::scaling
