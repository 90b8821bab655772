// Recorded calls of the authors' program (tests/golden/adaptive/pipeline.csv), one by one, and the
// comparison of a decision with the recorded one. For tests only.
#pragma once
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <string>

#include "golden_table.h"
#include "io/tensor_files/safetensors.h"
#include "scaling/rules/inverse_erf.h"
#include "scaling/rules/rules.h"
#include "scaling/tensor_statistics.h"

namespace ada::testing {

struct RecordedCall {
  const GoldenRow& row;
  RecordedTensor dy, w;  // w: no values for a cast

  // Whether it is the first call of a case; the layer keeps what it remembers until the next one.
  bool first() const { return row.at("call") == "0"; }
  float scale_in() const { return static_cast<float>(Number(row, "S_prev")); }
  // What a backend would have observed.
  scaling::Observation Observe() const {
    scaling::Observation seen;
    seen.dy = MomentsOf(dy);
    ObserveLogs(dy, seen);
    if (w.values.empty()) return seen;
    seen.w = MomentsOf(w);
    if (row.at("method") == "element_wise_range") ObserveProducts(dy, w, seen);
    return seen;
  }
};

// body(call) for every recorded call, in order.
template <class Body>
void ForRecordedCalls(Body&& body) {
  std::map<std::string, SafetensorsFile> files;
  for (const GoldenRow& row : ReadGolden("adaptive/pipeline.csv").rows) {
    CAPTURE(row.at("case"));
    CAPTURE(row.at("call"));
    const std::string& group = row.at("group");
    if (files.count(group) == 0)
      files.emplace(group,
                    SafetensorsFile::Open(std::string(ADA_SOURCE_DIR) + "/tests/golden/adaptive/" +
                                          group + ".safetensors"));
    RecordedCall call{row, ReadTensor(files.at(group), row.at("dy")), {}};
    if (!row.at("w").empty()) call.w = ReadTensor(files.at(group), row.at("w"));
    body(call);
  }
}

inline scaling::LayerMethod MethodOf(const std::string& name) {
  using scaling::LayerMethod;
  const std::map<std::string, LayerMethod> methods = {
      {"approx_range", LayerMethod::kApproxRange},
      {"approx_range+lognormal", LayerMethod::kLognormal},
      {"abs_range", LayerMethod::kAbsRange},
      {"element_wise_range", LayerMethod::kElementWiseRange},
      {"fixed", LayerMethod::kFixed}};
  return methods.at(name);
}

inline scaling::LayerRule RuleOf(const GoldenRow& row, bool reference) {
  scaling::LayerRule rule;
  rule.method = MethodOf(row.at("method"));
  rule.fixed_scale = Number(row, "fixed");
  rule.underflow_target = Number(row, "n_uf");
  rule.t = scaling::GaussianThreshold(rule.underflow_target);
  rule.phi_inverse = scaling::NormalQuantile(rule.underflow_target);
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

inline scaling::DecisionError ErrorOf(const std::string& text) {
  using scaling::DecisionError;
  if (text.rfind("ValueError", 0) == 0) return DecisionError::kNonfinite;
  if (text.rfind("RuntimeError", 0) == 0) return DecisionError::kNoProduct;
  if (text.rfind("AssertionError", 0) == 0) return DecisionError::kAlphaNotFinite;
  CHECK(text.empty());
  return DecisionError::kNone;
}

// A stage against its column; empty: not taken. The text reads back to the same fp32; `tolerance`
// is relative.
inline bool Agrees(double ours, const GoldenRow& row, const std::string& column,
                   double tolerance = 0) {
  if (row.at(column).empty()) return std::isnan(ours);
  const double theirs = static_cast<float>(Number(row, column));
  if (std::isnan(theirs)) return std::isnan(ours);
  return ours == theirs || std::fabs(ours - theirs) <= tolerance * std::fabs(theirs);
}

// Every stage of a decision made with reference: true.
inline void CheckStages(const scaling::ScaleDecision& ours, const GoldenRow& row) {
  const double near = row.at("method") == "approx_range+lognormal" ? 2e-5 : 3e-6;
  CHECK(ours.error == ErrorOf(row.at("error")));
  CHECK(Agrees(ours.unbound, row, "unbound", near));
  const bool unbounded = row.at("bound") == row.at("unbound") || row.at("use_bound") == "0";
  if (row.at("use_bound") == "1") CHECK(Agrees(ours.bound, row, "bound", unbounded ? near : 0));
  CHECK(Agrees(ours.pow2, row, "pow2"));
  CHECK(Agrees(ours.alpha, row, "alpha"));
  CHECK(Agrees(ours.scale_out, row, "S_out"));
}

}  // namespace ada::testing
