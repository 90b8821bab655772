// Attention against the CPU's. Their sums have other orders, so that a value before its rounding
// may differ in its last bits, and a rounded one is then a neighbor.
#include <doctest/doctest.h>

#include <bit>

#include "backend/moments.h"
#include "cuda/on_both.h"

namespace ada::backend::test {
namespace {

using scaling::LayerMethod;

struct AttentionCase {
  NumberFormat x = kFp32, gradients = kFp32;
  LayerMethod method = LayerMethod::kPass;
  int images = 3, heads = 4, kv_heads = 4, width = 8, queries = 37, keys = 37;
  bool causal = false, fused = false, rounds_p = true, rounds_ds = true, keeps = false;
  bool stochastic = false;
  float dropout = 0, p_scale = 0, ds_scale = 0;
  double sigma = 1;  // of queries, keys and values
};

Values RandomOf(const Shape& shape, double sigma, std::uint64_t seed) {
  return Normal(static_cast<std::size_t>(shape.numel()), sigma, seed);
}

// What differs in the last bits of fp32 sums: a step of the format where it is rounded.
double BoundOf(const NumberFormat& format) {
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
    spec.dy = lab.MakeGradient(q, c.gradients, 32, RandomOf(q, 1e-3, 5));
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
  void Step(Op& op, int step, Findings& findings) {
    const auto seed = static_cast<std::uint64_t>(10 * step);
    for (std::size_t i = 0; i < spec.x.size(); ++i)
      lab_.Set(spec.x[i], RandomOf(spec.x[i].shape, c_.sigma, seed + i));
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

// With so many scores in memory at a time: as on the CPU, and to the bits of all at once where
// products do not depend on their number.
void CheckChunks(const AttentionCase& c, int scores) {
  CAPTURE(scores);
  CudaSwitches switches, chunks;
  switches.poison = chunks.poison = true, chunks.scores = scores;
  std::vector<Values> values[3];
  const auto run = [&](std::unique_ptr<Backend> backend, std::vector<Values>& stored) {
    Lab lab(std::move(backend));
    Findings findings;
    AttentionLab attention(lab, c);
    const auto op = lab->Make(attention.spec);
    for (int step = 0; step < 3; ++step) {
      attention.Step(*op, step, findings);
      stored.push_back(lab.Get(attention.spec.y));
      for (const Gradient& dx : attention.spec.dx) stored.push_back(lab.Get(dx.tensor));
    }
    return findings;
  };
  const Findings cpu = run(cpu::MakeCpuBackend(1), values[0]);
  CheckSame(cpu, run(MakeBackendUnderTest(chunks), values[1]));
#ifndef ADA_CUDA_DEVICE  // whose library may add up other numbers of products otherwise
  run(MakeBackendUnderTest(switches), values[2]);
  CHECK(values[1] == values[2]);
#endif
}

// The bits of all that three steps write, with these switches.
std::vector<std::uint64_t> Written(const AttentionCase& c, const CudaSwitches& switches) {
  Lab lab(MakeBackendUnderTest(switches));
  AttentionLab attention(lab, c);
  const auto op = lab->Make(attention.spec);
  std::vector<std::uint64_t> all;
  for (int step = 0; step < 3; ++step) {
    Findings findings;
    attention.Step(*op, step, findings);
    findings.Add("y", lab, attention.spec.y);
    for (const Gradient& dx : attention.spec.dx) findings.Add("dx", lab, dx);
    for (const Findings::Entry& entry : findings.entries())
      for (const double value : entry.values) all.push_back(std::bit_cast<std::uint64_t>(value));
  }
  return all;
}

void Check(const AttentionCase& c) {
  CAPTURE(FormatName(c.x));
  CAPTURE(FormatName(c.gradients));
  CAPTURE(static_cast<int>(c.method));
  CAPTURE(c.causal);
  CAPTURE(c.fused);
  CAPTURE(c.kv_heads);
  CAPTURE(c.queries);
  OnBoth([&](Lab& lab, Findings& findings) {
    AttentionLab attention(lab, c);
    const auto op = lab->Make(attention.spec);
    for (int step = 0; step < 3; ++step) attention.Step(*op, step, findings);
  });
}

}  // namespace

TEST_SUITE(ADA_SUITE) {
  TEST_CASE("attention in every format, causal and not, from one tensor and from three") {
    for (const auto& [x, gradients] : {std::pair{kFp32, kFp32},
                                       {kFp16, kFp16},
                                       {kBf16, kBf16},
                                       {kFp8E4M3, kFp8E5M2},
                                       {kFp16, kBf16},
                                       {kBf16, kFp32}})
      for (const bool causal : {false, true})
        for (const bool fused : {false, true}) {
          AttentionCase c;
          c.x = x, c.gradients = gradients, c.causal = causal, c.fused = fused;
          Check(c);
        }
  }

  TEST_CASE("attention of grouped heads, odd sizes, other keys than queries") {
    AttentionCase c;
    c.x = c.gradients = kFp16, c.heads = 6, c.causal = true;
    for (const int kv_heads : {1, 2, 3}) {
      c.kv_heads = kv_heads, c.fused = kv_heads == 2;
      Check(c);
    }
    c.fused = false, c.width = 5, c.kv_heads = 3;
    for (const auto& [queries, keys] : {std::pair{1, 1}, {1, 20}, {20, 1}, {17, 40}, {40, 17}})
      for (const bool causal : {false, true}) {
        c.queries = queries, c.keys = keys, c.causal = causal;
        Check(c);
      }
    c.heads = c.kv_heads = 1, c.width = 1, c.queries = 3, c.keys = 5;
    Check(c);
  }

  TEST_CASE("attention under every rule") {
    for (const LayerMethod method :
         {LayerMethod::kPass, LayerMethod::kFixed, LayerMethod::kApproxRange,
          LayerMethod::kLognormal, LayerMethod::kAbsRange, LayerMethod::kElementWiseRange,
          LayerMethod::kExactRange, LayerMethod::kState})
      for (const bool rounds_ds : {true, false}) {
        AttentionCase c;
        c.x = c.gradients = kFp16, c.method = method, c.causal = true, c.rounds_ds = rounds_ds;
        c.kv_heads = 2;
        Check(c);
      }
  }

  TEST_CASE("attention with dropout, kept and unrounded probabilities, random rounding, scales") {
    AttentionCase c;
    c.x = c.gradients = kFp16, c.causal = true, c.dropout = 0.3f;
    for (const bool keeps : {false, true}) {
      c.keeps = keeps, c.rounds_p = true;
      Check(c);
      c.rounds_p = false;
      Check(c);
    }
    c.rounds_p = true, c.width = 3, c.queries = c.keys = 19;  // chunks of no multiple of 4 values
    Check(c);
    c = {}, c.x = c.gradients = kBf16, c.sigma = 20;  // scores beyond fp32's probabilities
    Check(c);
    c = {}, c.x = c.gradients = kFp8E4M3, c.p_scale = 64, c.ds_scale = 512;
    Check(c);
  }

  TEST_CASE("attention in chunks of heads") {
    for (const LayerMethod method : {LayerMethod::kApproxRange, LayerMethod::kExactRange})
      for (const bool keeps : {false, true})
        for (const bool stochastic : {false, true}) {
          AttentionCase c;
          c.x = c.gradients = kFp16, c.method = method, c.causal = true, c.kv_heads = 2;
          c.dropout = 0.3f, c.keeps = keeps, c.stochastic = stochastic;
          for (const int heads : {1, 2, 3}) CheckChunks(c, heads * 2 * 37 * 37);
          c.queries = c.keys = 19, c.width = 3;
          CheckChunks(c, 1);
        }
  }

  TEST_CASE("attention launched in parts writes the same bits") {
    for (const LayerMethod method :
         {LayerMethod::kPass, LayerMethod::kApproxRange, LayerMethod::kExactRange})
      for (const bool rounds_ds : {true, false})
        for (const int width : {8, 3}) {
          CAPTURE(static_cast<int>(method));
          AttentionCase c;
          c.x = c.gradients = kFp16, c.method = method, c.rounds_ds = rounds_ds, c.width = width;
          c.kv_heads = 2, c.fused = width == 8, c.causal = true;
          const auto whole = Written(c, CudaSwitches());
          CudaSwitches parts;
          parts.fused = false;
          CHECK(Written(c, parts) == whole);
          parts.last_block = false;
          CHECK(Written(c, parts) == whole);
          parts.fused = true;
          CHECK(Written(c, parts) == whole);
        }
  }

  TEST_CASE("attention without some of its gradients") {
    for (const unsigned asked : {1u, 2u, 4u, 5u, 6u, 0u})
      OnBoth([&](Lab& lab, Findings& findings) {
        AttentionCase c;
        c.x = c.gradients = kFp16, c.method = LayerMethod::kApproxRange;
        AttentionLab attention(lab, c);
        for (unsigned i = 0; i < 3; ++i)
          if ((asked >> i & 1) == 0) attention.spec.dx[i] = {};
        const auto op = lab->Make(attention.spec);
        attention.Step(*op, 0, findings);
      });
  }
}

}  // namespace ada::backend::test
