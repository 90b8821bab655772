// The policies without a machine: none and fixed; and the check of scales that a user gives.
#include <doctest/doctest.h>

#include <cmath>
#include <memory>

#include "error.h"
#include "scaling/policies/policies.h"

namespace ada::scaling {
namespace {

TEST_SUITE("cpu") {
  TEST_CASE("none and fixed: one scale, every layer passes it on, an overflow is skipped") {
    struct Row {
      std::unique_ptr<Policy> policy;
      std::string name;
      double scale;
    };
    Row rows[] = {
        {MakeNone(1), "none", 1}, {MakeNone(8), "none", 8}, {MakeFixed(1024), "fixed", 1024}};
    LayerInfo cast;
    cast.u_min = 0x1p-24;
    cast.has_weight = false;
    for (Row& row : rows) {
      CAPTURE(row.name);
      CHECK(row.policy->name() == row.name);
      const LayerRule rule = row.policy->RuleFor(cast);
      CHECK(rule.method == LayerMethod::kPass);
      CHECK(rule.u_min == 0x1p-24);
      CHECK_FALSE(rule.has_weight);
      CHECK(row.policy->LayerScale("fc") == 1);
      const StatsRequest wishes = row.policy->RequiredStats();
      CHECK_FALSE(wishes.amax);
      CHECK_FALSE(wishes.layers);
      CHECK(wishes.edge == 0);
      for (const bool overflow : {false, true, true}) {
        StepOutcome attempt;
        attempt.overflow = overflow;
        const ScaleUpdate verdict = row.policy->Update(attempt);
        CHECK(verdict.action == (overflow ? Action::kSkip : Action::kUpdate));
        CHECK(verdict.reason.empty());
        CHECK(verdict.error.empty());
        CHECK(verdict.before == row.scale);
        CHECK(verdict.after == row.scale);
        CHECK(row.policy->Scale() == row.scale);
      }
      CHECK(row.policy->SaveState().empty());
      row.policy->LoadState({});
      CHECK_THROWS_AS(row.policy->LoadState({{"scale", "0x1p+0"}}), DataError);
    }
  }

  TEST_CASE("a scale that fp32 cannot hold is a config error that names its key") {
    for (const double bad : {0.0, -1.0, 1e39, 1e-50, std::nan("")}) {
      CAPTURE(bad);
      CHECK_THROWS_AS(MakeNone(bad), ConfigError);
      CHECK_THROWS_AS(MakeFixed(bad), ConfigError);
      CHECK_THROWS_AS(MakeAdaptive(bad, {}), ConfigError);
      CHECK_THROWS_AS(MakeLayerwiseDynamic(bad, {}), ConfigError);
      DynamicParameters dynamic;
      dynamic.init_scale = bad;
      CHECK_THROWS_AS(MakeDynamic(dynamic), ConfigError);
      HistogramParameters histogram;
      histogram.init_scale = bad;
      CHECK_THROWS_AS(MakeHistogram(histogram), ConfigError);
      LogMaxParameters logmax;
      logmax.min_scale = bad;
      CHECK_THROWS_AS(MakeLogMax(logmax), ConfigError);
    }
    CHECK_THROWS_WITH(MakeFixed(-1),
                      "scaling.scale: -1.000000 is no scale; expected a positive number that fp32 "
                      "can hold (1e-38 .. 3e38)");
  }
}

}  // namespace
}  // namespace ada::scaling
