// Decide and the power of two against recorded calls of the authors' program: `reference: true`
// reproduces every call, ours follows the formulas where the authors' arithmetic parts from them.
// Branch points: branch_golden_test.cpp.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "core/safetensors.h"
#include "golden_table.h"
#include "scaling/inverse_erf.h"
#include "scaling/rules.h"
#include "tensor_statistics.h"

namespace ada::scaling {
namespace {

using testing::GoldenRow;
using testing::Number;
using testing::RecordedTensor;

std::string GoldenPath(const std::string& name) {
  return std::string(ADA_SOURCE_DIR) + "/tests/golden/adaptive/" + name;
}

LayerMethod MethodOf(const std::string& name) {
  const std::map<std::string, LayerMethod> methods = {
      {"approx_range", LayerMethod::kApproxRange},
      {"approx_range+lognormal", LayerMethod::kLognormal},
      {"abs_range", LayerMethod::kAbsRange},
      {"element_wise_range", LayerMethod::kElementWiseRange},
      {"fixed", LayerMethod::kFixed}};
  return methods.at(name);
}

LayerRule RuleOf(const GoldenRow& row, bool reference) {
  LayerRule rule;
  rule.method = MethodOf(row.at("method"));
  rule.fixed_scale = Number(row, "fixed");
  rule.underflow_target = Number(row, "n_uf");
  rule.t = GaussianThreshold(rule.underflow_target);
  rule.phi_inverse = NormalQuantile(rule.underflow_target);
  rule.u_min = static_cast<float>(Number(row, "u_min"));  // recorded as the fp32 that it is
  rule.u_max = Number(row, "u_max");
  const bool bounds = row.at("use_bound") == "1";
  rule.scale_upper_bound = bounds ? Number(row, "SB") : INFINITY;
  rule.accum_upper_bound = bounds ? Number(row, "AB") : INFINITY;
  rule.has_weight = row.at("kind") != "cast";
  rule.fan = rule.has_weight ? Number(row, "fan") : 1;
  rule.power_of_two = row.at("power_of_two") == "1";
  rule.update_interval = static_cast<std::int32_t>(Number(row, "update_interval"));
  rule.reference = reference;
  rule.fp16_gradients = row.at("dy_dtype") == "float16";
  return rule;
}

DecisionError ErrorOf(const std::string& text) {
  if (text.rfind("ValueError", 0) == 0) return DecisionError::kNonfinite;
  if (text.rfind("RuntimeError", 0) == 0) return DecisionError::kNoProduct;
  if (text.rfind("AssertionError", 0) == 0) return DecisionError::kAlphaNotFinite;
  CHECK(text.empty());
  return DecisionError::kNone;
}

// Calls of one recording in order: what a backend would have observed for each.
class Recording {
 public:
  const SafetensorsFile& File(const std::string& group) {
    const auto found = files_.find(group);
    if (found != files_.end()) return found->second;
    return files_.emplace(group, SafetensorsFile::Open(GoldenPath(group + ".safetensors")))
        .first->second;
  }
  Observation Observe(const GoldenRow& row) {
    const SafetensorsFile& file = File(row.at("group"));
    const RecordedTensor dy = testing::ReadTensor(file, row.at("dy"));
    Observation seen;
    seen.dy = testing::MomentsOf(dy);
    testing::ObserveLogs(dy, seen);
    if (!row.at("w").empty()) {
      const RecordedTensor w = testing::ReadTensor(file, row.at("w"));
      seen.w = testing::MomentsOf(w);
      if (row.at("method") == "element_wise_range") testing::ObserveProducts(dy, w, seen);
    }
    return seen;
  }

 private:
  std::map<std::string, SafetensorsFile> files_;
};

// A stage against its column; empty: not taken. The text reads back to the same fp32; `tolerance`
// is relative.
bool Agrees(double ours, const GoldenRow& row, const std::string& column, double tolerance = 0) {
  if (row.at(column).empty()) return std::isnan(ours);
  const double theirs = static_cast<float>(Number(row, column));
  if (std::isnan(theirs)) return std::isnan(ours);
  return ours == theirs || std::fabs(ours - theirs) <= tolerance * std::fabs(theirs);
}

TEST_SUITE("cpu") {
  TEST_CASE("every recorded call, with reference: true") {
    Recording recording;
    LayerScaler scaler;
    int calls = 0, errors = 0;
    for (const GoldenRow& row : testing::ReadGolden("adaptive/pipeline.csv").rows) {
      CAPTURE(row.at("case"));
      CAPTURE(row.at("call"));
      if (row.at("call") == "0") scaler = LayerScaler{RuleOf(row, true), {}, {}};
      const bool looks = scaler.rule.method != LayerMethod::kFixed;
      CHECK(NeedsOf(scaler).moments == (looks && row.at("updating") == "1"));
      Decide(scaler, recording.Observe(row), static_cast<float>(Number(row, "S_prev")));
      const ScaleDecision& ours = scaler.decision;
      const double near = scaler.rule.method == LayerMethod::kLognormal ? 2e-5 : 3e-6;
      CHECK(ours.error == ErrorOf(row.at("error")));
      CHECK(Agrees(ours.unbound, row, "unbound", near));
      const bool unbounded = row.at("bound") == row.at("unbound") || row.at("use_bound") == "0";
      if (row.at("use_bound") == "1") CHECK(Agrees(ours.bound, row, "bound", unbounded ? near : 0));
      CHECK(Agrees(ours.pow2, row, "pow2"));
      CHECK(Agrees(ours.alpha, row, "alpha"));
      CHECK(Agrees(ours.scale_out, row, "S_out"));
      ++calls;
      errors += ours.error != DecisionError::kNone;
    }
    CHECK(calls == 178);
    CHECK(errors == 20);
  }

  TEST_CASE("every recorded call, ours: the formulas' value, their limit, no alpha of 0") {
    Recording recording;
    LayerScaler scaler;
    int values = 0, words = 0, nonfinite = 0;
    for (const GoldenRow& row : testing::ReadGolden("adaptive/pipeline.csv").rows) {
      CAPTURE(row.at("case"));
      CAPTURE(row.at("call"));
      if (row.at("call") == "0") scaler = LayerScaler{RuleOf(row, false), {}, {}};
      const Observation seen = recording.Observe(row);
      const bool updates = NeedsOf(scaler).moments;
      Decide(scaler, seen, static_cast<float>(Number(row, "S_prev")));
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
        if ((word == "SB" || word == "AB") && row.at("bound") == row.at("unbound")) continue;
        CHECK(LimitName(ours.limit) == (word == "none" ? std::string("target") : word));
        ++words;
      }
    }
    // Of 136 recorded ones; after the NaN of an update ours updates at once, the original later.
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
