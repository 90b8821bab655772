// Decide and the power of two against recorded calls of the authors' program: `reference: true`
// reproduces every call, ours follows the formulas where the authors' arithmetic parts from them.
// Branch points: branch_golden_test.cpp.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>

#include "golden_table.h"
#include "scaling/recorded_calls.h"
#include "scaling/rules/rules.h"

namespace ada::scaling {
namespace {

using testing::ForRecordedCalls;
using testing::GoldenRow;
using testing::Number;
using testing::RecordedCall;
using testing::RuleOf;

TEST_SUITE("cpu") {
  TEST_CASE("every recorded call, with reference: true") {
    LayerScaler scaler;
    int calls = 0, errors = 0;
    ForRecordedCalls([&](const RecordedCall& call) {
      if (call.first()) scaler = LayerScaler{RuleOf(call.row, true), {}, {}};
      const bool looks = scaler.rule.method != LayerMethod::kFixed;
      CHECK(NeedsOf(scaler).moments == (looks && call.row.at("updating") == "1"));
      Decide(scaler, call.Observe(), call.scale_in());
      testing::CheckStages(scaler.decision, call.row);
      ++calls;
      errors += scaler.decision.error != DecisionError::kNone;
    });
    CHECK(calls == 178);
    CHECK(errors == 20);
  }

  TEST_CASE("every recorded call, ours: the formulas' value, their limit, no alpha of 0") {
    LayerScaler scaler;
    int values = 0, words = 0, nonfinite = 0;
    ForRecordedCalls([&](const RecordedCall& call) {
      const GoldenRow& row = call.row;
      if (call.first()) scaler = LayerScaler{RuleOf(row, false), {}, {}};
      const Observation seen = call.Observe();
      const bool updates = NeedsOf(scaler).moments;
      Decide(scaler, seen, call.scale_in());
      const ScaleDecision& ours = scaler.decision;
      CHECK(ours.error == DecisionError::kNone);
      CHECK(ours.alpha > 0);
      CHECK(std::isfinite(ours.scale_out));
      if (updates && !std::isfinite(seen.dy.mean_square)) {
        CHECK(ours.limit == Limit::kNonfinite);
        CHECK(ours.alpha == 1);
        ++nonfinite;
      } else if (updates && !row.at("derived_limit").empty()) {
        double value = 1;
        if (!row.at("derived_want").empty()) {
          value = std::fmin(std::fmax(Number(row, "derived_want"), 1), Number(row, "derived_cap"));
        }
        CHECK(std::fabs(ours.unbound / value - 1) <= 3e-7);
        ++values;
        // A word of bounds where the recorded bound changed nothing stems from comparing the
        // program's fp32 value with the formula's: not comparable.
        const std::string word = row.at("derived_limit");
        if ((word == "SB" || word == "AB") && row.at("bound") == row.at("unbound")) return;
        CHECK(LimitName(ours.limit) == (word == "none" ? std::string("target") : word));
        ++words;
      }
    });
    // There are 136 recorded ones; after the NaN of an update ours updates at once, the original
    // later.
    CHECK(values == 135);
    CHECK(words == 134);
    CHECK(nonfinite == 7);
  }

  TEST_CASE("recorded powers of two") {
    int compared = 0;
    for (const GoldenRow& row : testing::ReadGolden("adaptive/pow2.csv").rows) {
      CAPTURE(row.at("bits"));
      const auto bits = static_cast<std::uint32_t>(std::stoul(row.at("bits"), nullptr, 16));
      float b;
      std::memcpy(&b, &bits, sizeof b);
      CHECK(detail::PowerOfTwoAsReference(b, false) == Number(row, "pow2"));
      ++compared;
      if (!(b > 0)) continue;
      // Ours: exact; the recorded log2 is rounded to fp32 and may have gone up to the next integer.
      const double ours = detail::PowerOfTwoBelow(b),
                   theirs = std::exp2(Number(row, "floor_log2_fp32"));
      CHECK(ours <= b);
      CHECK(2 * ours > b);
      CHECK((ours == theirs || (2 * ours == theirs && b > theirs * (1 - 1e-5))));
    }
    CHECK(compared == 125);
  }
}

}  // namespace
}  // namespace ada::scaling
