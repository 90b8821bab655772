// The histogram policy: every transition, what it wishes to see, restoring.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "error.h"
#include "scaling/policies/policies.h"

namespace ada::scaling {
namespace {

HistogramParameters Small(double start, std::int64_t period) {
  HistogramParameters p;
  p.init_scale = start;
  p.update_period = period;
  p.min_scale = 2;
  p.max_scale = 64;
  return p;
}

StepOutcome Of(std::int64_t above, std::int64_t below, bool overflow = false) {
  StepOutcome attempt;
  attempt.above = above;
  attempt.below = below;
  attempt.overflow = overflow;
  return attempt;
}

TEST_SUITE("cpu") {
  TEST_CASE("a period's last attempt decides") {
    struct Row {
      std::string what;
      double start;
      StepOutcome attempt;
      double after;
      const char* reason;
    };
    const Row rows[] = {
        {"nothing above", 16, Of(0, 1000), 32, "0 of 1000 gradients above the edge"},
        {"more than the threshold", 16, Of(1, 999), 8, "1 of 1000 gradients above the edge"},
        {"exactly the threshold is not more", 16, Of(1, 9999999), 32,
         "1 of 10000000 gradients above the edge"},
        {"just more", 16, Of(1, 9999998), 8, "1 of 9999999 gradients above the edge"},
        {"floor", 3, Of(9, 0), 2, "9 of 9 gradients above the edge"},
        {"at the floor", 2, Of(9, 0), 2, ""},
        {"ceiling", 48, Of(0, 9), 64, "0 of 9 gradients above the edge"},
        {"at the ceiling", 64, Of(0, 9), 64, ""},
        {"an overflow is too high, whatever was counted", 16, Of(0, 9, true), 8,
         "overflow at the period's end"},
        {"nothing was counted", 16, Of(0, 0), 16, ""},
    };
    for (const Row& row : rows) {
      CAPTURE(row.what);
      const auto policy = MakeHistogram(Small(row.start, 1));
      CHECK(policy->RequiredStats().edge == 0.125);
      const ScaleUpdate verdict = policy->Update(row.attempt);
      CHECK(verdict.before == row.start);
      CHECK(verdict.after == row.after);
      CHECK(policy->Scale() == row.after);
      CHECK(verdict.reason == row.reason);
      CHECK(verdict.action == (row.attempt.overflow ? Action::kSkip : Action::kUpdate));
      CHECK(verdict.error.empty());
    }
  }

  TEST_CASE("within a period nothing moves, skipped attempts count") {
    const auto policy = MakeHistogram(Small(16, 3));
    const std::vector<double> edges = {0, 0, 0.125, 0, 0, 0.125, 0};
    const std::vector<double> after = {16, 16, 32, 32, 32, 16, 16};
    for (std::size_t i = 0; i < edges.size(); ++i) {
      CAPTURE(i);
      CHECK(policy->RequiredStats().edge == edges[i]);
      const ScaleUpdate verdict = policy->Update(i == 5 ? Of(5, 5) : Of(0, 5, i == 0));
      CHECK(verdict.after == after[i]);
      CHECK(verdict.action == (i == 0 ? Action::kSkip : Action::kUpdate));
    }
  }

  TEST_CASE("random attempts: bounds, powers of two, and a restored policy goes on alike") {
    std::mt19937 random(3);
    for (int pattern = 0; pattern < 20; ++pattern) {
      const HistogramParameters p = Small(16, 1 + random() % 5);
      auto straight = MakeHistogram(p), restored = MakeHistogram(p);
      for (int step = 0; step < 200; ++step) {
        CAPTURE(pattern);
        CAPTURE(step);
        const StepOutcome attempt = Of(random() % 3, 100, random() % 7 == 0);
        const ScaleUpdate verdict = straight->Update(attempt);
        auto next = MakeHistogram(p);
        next->LoadState(restored->SaveState());
        restored = std::move(next);
        REQUIRE(restored->Update(attempt).after == verdict.after);
        REQUIRE(restored->SaveState() == straight->SaveState());
        REQUIRE(restored->RequiredStats().edge == straight->RequiredStats().edge);
        const double allowed[] = {2, 4, 8, 16, 32, 64};
        REQUIRE(std::count(std::begin(allowed), std::end(allowed), verdict.after) == 1);
      }
    }
  }

  TEST_CASE("settings and states that do not fit") {
    CHECK_THROWS_WITH_AS(MakeHistogram(Small(16, 0)),
                         "scaling.update_period: 0, expected 1 or more", ConfigError);
    HistogramParameters p = Small(16, 3);
    p.max_scale = 1;
    CHECK_THROWS_AS(MakeHistogram(p), ConfigError);
    const auto policy = MakeHistogram(Small(16, 3));
    const StateMap states[] = {{},
                               {{"scale", "0x1p+3"}},
                               {{"scale", "0x0p+0"}, {"attempts", "0"}},
                               {{"scale", "inf"}, {"attempts", "0"}},
                               {{"scale", "0x1p+3"}, {"attempts", "3"}},
                               {{"scale", "0x1p+3"}, {"attempts", "-1"}}};
    for (const StateMap& state : states) CHECK_THROWS_AS(policy->LoadState(state), DataError);
    CHECK(policy->Scale() == 16);
  }
}

}  // namespace
}  // namespace ada::scaling
