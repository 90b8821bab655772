// One attention's op with random tensors, and what its steps find.
#pragma once
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <string>

#include "backend/moments.h"
#include "cuda/on_both.h"
#include "number/random.h"

namespace ada::backend::test {

using scaling::LayerMethod;
inline constexpr LayerMethod kEveryMethod[] = {
    LayerMethod::kPass,       LayerMethod::kFixed,    LayerMethod::kApproxRange,
    LayerMethod::kLognormal,  LayerMethod::kAbsRange, LayerMethod::kElementWiseRange,
    LayerMethod::kExactRange, LayerMethod::kState};

// What queries, keys, values and dy are: normal; or such that each sum of the products of rounded
// values is exact in fp32, in whatever order: whole numbers, or those whose scores are all 0.
enum class AttentionData : std::uint8_t { kNormal, kExact, kUniform };

struct AttentionCase {
  NumberFormat x = kFp32, gradients = kFp32;
  LayerMethod method = LayerMethod::kPass;
  int images = 3, heads = 4, kv_heads = 4, width = 8, queries = 37, keys = 37;
  bool causal = false, fused = false, rounds_p = true, rounds_ds = true, keeps = false;
  bool stochastic = false;
  float dropout = 0, p_scale = 0, ds_scale = 0;
  double sigma = 1;  // of queries, keys and values
  AttentionData data = AttentionData::kNormal;
};

inline Values RandomOf(const Shape& shape, double sigma, std::uint64_t seed) {
  return Normal(static_cast<std::size_t>(shape.numel()), sigma, seed);
}

// What differs in the last bits of fp32 sums: a step of the format where it is rounded.
inline double BoundOf(const NumberFormat& format) {
  return std::max(4e-6, 2 * std::ldexp(1.0, -format.mantissa_bits));
}

class AttentionLab {
 public:
  AttentionLab(Lab& lab, const AttentionCase& c) : lab_(lab), c_(c) {
    const std::int64_t own = std::int64_t{c.heads} * c.width,
                       theirs = std::int64_t{c.kv_heads} * c.width;
    const Shape q{c.images, c.queries, 1, own}, k{c.images, c.keys, 1, theirs};
    spec.layer = "attention", spec.heads = c.heads, spec.kv_heads = c.kv_heads;
    spec.causal = c.causal, spec.dropout = c.dropout, spec.stream = 99;
    spec.keeps_probabilities = c.keeps;
    spec.rounds_p = c.rounds_p, spec.rounds_ds = c.rounds_ds;
    spec.p_format = c.x, spec.ds_format = c.gradients;
    spec.p_style = StyleOf(1, c.p_scale), spec.ds_style = StyleOf(2, c.ds_scale);
    if (c.rounds_p) spec.p_stats = lab.Share<TensorStats>();
    if (c.rounds_ds) spec.ds_stats = lab.Share<TensorStats>();
    spec.ds_scale = lab.Share(0.0f);
    if (c.fused)
      spec.x = {lab.Make({c.images, c.queries, 1, own + 2 * theirs}, c.x)};
    else
      spec.x = {lab.Make(q, c.x), lab.Make(k, c.x), lab.Make(k, c.x)};
    spec.y = lab.Make(q, c.x), spec.y_style = StyleOf(3, 0);
    spec.y_stats = lab.Share<TensorStats>();
    spec.dy = lab.MakeGradient(
        q, c.gradients, 32,
        c.data == AttentionData::kNormal ? RandomOf(q, 1e-3, 5) : WholeOf(q, 5, 0x1p-14f));
    spec.dy.moments = lab.Share(MomentsOf(lab.Get(spec.dy.tensor)));
    for (const Shape& shape : {q, k, k}) {
      spec.dx.push_back(lab.MakeGradient(shape, c.gradients));
      spec.dx.back().style = StyleOf(3 + static_cast<std::uint64_t>(spec.dx.size()), 0);
    }
    for (scaling::LayerScaler*& scaler : spec.scalers) {
      scaling::LayerScaler rule;
      rule.rule.method = c.method, rule.rule.fan = static_cast<double>(c.queries);
      rule.rule.fixed_scale = 4;
      rule.rule.u_min = c.gradients.smallest_subnormal(), rule.rule.u_max = c.gradients.largest();
      rule.state.state_scale = 64;
      scaler = lab.Share(rule);
    }
  }
  // Queries, keys and values.
  void SetInputs(std::uint64_t seed) {
    for (std::size_t i = 0; i < spec.x.size(); ++i) lab_.Set(spec.x[i], InputOf(i, seed + i));
  }
  void Step(Op& op, int step, Findings& findings) {
    SetInputs(static_cast<std::uint64_t>(10 * step));
    Pass pass;
    pass.rows = step == 1 ? c_.images - 1 : c_.images, pass.count = pass.bins = step != 1;
    pass.seed = 0x123456789abcdefull, pass.draw = static_cast<std::uint64_t>(step);
    pass.first_row = step == 2 ? 5 : 0;
    op.Forward(pass);
    op.Backward(pass);
    Note(findings);
  }

  AttentionSpec spec;

 private:
  // -1, 0 or 1 times `unit`.
  static Values WholeOf(const Shape& shape, std::uint64_t seed, float unit) {
    Values values = RandomOf(shape, 1, seed);
    for (float& x : values) x = x < -0.7f ? -unit : x > 0.7f ? unit : 0.0f;
    return values;
  }
  // Uniform scores: where a query is not 0, keys are.
  Values InputOf(std::size_t input, std::uint64_t seed) const {
    const Shape& shape = spec.x[input].shape;
    if (c_.data == AttentionData::kNormal) return RandomOf(shape, c_.sigma, seed);
    Values values = WholeOf(shape, seed, 1);
    if (c_.data == AttentionData::kExact) return values;
    const std::int64_t own = std::int64_t{c_.heads} * c_.width,
                       theirs = std::int64_t{c_.kv_heads} * c_.width;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::int64_t channel = static_cast<std::int64_t>(i) % shape.c;
      const bool query = c_.fused ? channel < own : input == 0;
      const bool key = c_.fused ? channel >= own && channel < own + theirs : input == 1;
      const bool low = channel % c_.width < c_.width / 2;
      if ((query && low) || (key && !low)) values[i] = 0;
    }
    return values;
  }
  RoundingStyle StyleOf(std::uint64_t stream, float scale) {
    RoundingStyle style;
    style.stochastic = c_.stochastic, style.stream = stream;
    if (scale != 0) style.per_tensor_scale = lab_.Share(scaling::TensorScaler{scale});
    style.bins = lab_.Share(ExponentBins());
    return style;
  }
  void Note(Findings& findings) const {
    findings.Near("y", lab_, spec.y, BoundOf(c_.x));
    Counts("y", lab_.Fetched(spec.y_stats), findings);
    if (c_.rounds_p) Counts("p", lab_.Fetched(spec.p_stats), findings);
    if (c_.rounds_ds) Counts("ds", lab_.Fetched(spec.ds_stats), findings);
    findings.Numbers("ds scale", {static_cast<double>(lab_.Fetched(spec.ds_scale))});
    const char* const names[] = {"dq", "dk", "dv"};
    for (std::size_t i = 0; i < 3; ++i) {
      const Gradient& dx = spec.dx[i];
      if (!dx) continue;
      findings.Near(names[i], lab_, dx.tensor, BoundOf(c_.x) + 2 * BoundOf(c_.gradients));
      findings.Numbers("scale", {static_cast<double>(lab_.Fetched(dx.scale))});
      Counts(names[i], lab_.Fetched(dx.stats), findings);
      findings.Numbers("moments", {lab_.Fetched(dx.moments).mean_square}, 2e-2);
    }
    for (scaling::LayerScaler* scaler : spec.scalers) {
      const scaling::ScaleDecision made = lab_.Fetched(scaler).decision;
      findings.Numbers("decision",
                       {static_cast<double>(made.alpha), static_cast<double>(made.scale_in),
                        static_cast<double>(made.scale_out), static_cast<double>(made.limit)});
      findings.Numbers("unbound", {made.unbound}, 1e-2);  // of extremes, which are rounded
      const scaling::ExponentTail tail = lab_.Fetched(scaler).state.tail;
      findings.Numbers("tail", {static_cast<double>(tail.scale_in)});
      findings.Numbers("tail's values", {static_cast<double>(tail.nonzero), tail.largest}, 1e-3);
    }
  }
  static void Counts(const char* name, const TensorStats& s, Findings& findings) {
    const auto whole = [](std::int64_t x) { return static_cast<double>(x); };
    findings.Numbers(name + std::string(" whole"),
                     {whole(s.numel), s.full ? 1.0 : 0.0, whole(s.inf), whole(s.nan)});
    // Values at a boundary may fall to either side: `some` of them.
    const double some = 2e-3 * whole(s.numel) + 2;
    const auto near = [&](const char* what, std::int64_t count) {
      findings.Numbers(std::string(name) + what, {whole(count) + 1e6 * some}, 1e-6);
    };
    near(" zeros", s.zeros_before), near(" underflow", s.underflow);
    near(" below_min", s.below_min), near(" subnormal", s.subnormal);
    near(" overflow", s.overflow), near(" above_edge", s.above_edge);
    findings.Numbers(std::string(name) + " sums",
                     {static_cast<double>(s.max_abs), s.l1, s.l2, s.std}, 1e-2);
  }

  Lab& lab_;
  AttentionCase c_;
};

}  // namespace ada::backend::test
