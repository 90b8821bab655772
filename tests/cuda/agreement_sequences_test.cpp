// Layers of sequences of the CUDA backend against the CPU's, by way of device.compare: every
// mixture of formats and styles.
#include <doctest/doctest.h>

#include <bit>
#include <functional>

#include "compare/breaking_backend.h"
#include "cuda/agreement_lab.h"

namespace ada::backend::test {
namespace {

using scaling::LayerMethod;

Values RandomOf(const Shape& shape, double sigma, std::uint64_t seed) {
  return Normal(static_cast<std::size_t>(shape.numel()), sigma, seed);
}

void CheckLinear(const Roles& r, const Shape& x, std::int64_t features, bool adds_dw) {
  Agreement both;
  Lab& lab = both.lab;
  const Shape y{x.n, x.h * x.w, 1, features}, w{features, 1, 1, x.c};
  LinearSpec spec;
  spec.layer = "linear";
  spec.x = lab.Make(x, r.x, RandomOf(x, 1, 1));
  spec.w = lab.Make(w, kFp32, RandomOf(w, 0.3, 2)), spec.b = lab.Vector(Normal(features, 1, 3));
  spec.w_format = r.w, spec.w_style = both.Style(r.stochastic, 4, 0);
  spec.w_stats = lab.Share(TensorStats());
  spec.y_style = both.Style(r.stochastic, 5, r.y_scale), spec.y_stats = lab.Share(TensorStats());
  spec.y = both.Out(y, r.y, spec.y_style);
  spec.dy = both.InGradient(y, r.dy, RandomOf(y, 1, 6), 4);
  spec.dx = both.OutGradient(x, r.dx, both.Style(r.stochastic, 7, r.dx_scale));
  spec.dw = lab.Make(w, kFp32, RandomOf(w, 1, 8));
  spec.db = lab.Vector(Values(static_cast<std::size_t>(features)));
  spec.dw_format = r.dw, spec.dw_style = both.Style(r.stochastic, 9, 0);
  spec.dw_stats = lab.Share(TensorStats()), spec.adds_dw = adds_dw;
  scaling::LayerScaler scaler;
  scaler.rule.method = LayerMethod::kApproxRange, scaler.rule.fan = static_cast<double>(features);
  scaler.rule.u_min = r.dx.smallest_subnormal(), scaler.rule.u_max = r.dx.largest();
  spec.scaler = lab.Share(scaler);
  both.Steps(*lab->Make(spec), x);
}

void CheckEmbedding(const Roles& r) {
  Agreement both;
  Lab& lab = both.lab;
  const Shape tokens{5, 40, 1, 1}, y{5, 40, 1, 12}, w{30, 1, 1, 12};
  RandomStream random(1, StreamId("tokens"));
  Values ids;
  for (std::int64_t i = 0; i < tokens.numel(); ++i)
    ids.push_back(std::bit_cast<float>(random.NextU32() % 30));
  EmbeddingSpec spec;
  spec.layer = "embedding", spec.x = lab.Make(tokens, kFp32, ids);
  spec.w = lab.Make(w, kFp32, RandomOf(w, 1, 2)), spec.dw = lab.Make(w, kFp32, RandomOf(w, 1, 3));
  spec.y_style = both.Style(r.stochastic, 5, r.y_scale), spec.y_stats = lab.Share(TensorStats());
  spec.y = both.Out(y, r.y, spec.y_style);
  spec.dy = both.InGradient(y, r.dy, RandomOf(y, 1, 6), 4);
  spec.dw_format = r.dw, spec.dw_style = both.Style(r.stochastic, 9, 0);
  spec.dw_stats = lab.Share(TensorStats()), spec.adds_dw = true;
  both.Steps(*lab->Make(spec), tokens);
}

struct Heads {
  int queries, keys, width;
  bool causal, fused, keeps;
};
void CheckAttention(const Roles& r, const Heads& h, LayerMethod method, bool rounds,
                    Agreement&& both = Agreement()) {
  CAPTURE(static_cast<int>(method));
  Lab& lab = both.lab;
  AttentionSpec spec;
  spec.layer = "attention", spec.heads = 4, spec.kv_heads = 2, spec.causal = h.causal;
  spec.keeps_probabilities = h.keeps, spec.dropout = h.keeps ? 0.2f : 0, spec.stream = 20;
  spec.rounds_p = spec.rounds_ds = rounds;
  const Shape q{3, h.queries, 1, 4 * h.width}, k{3, h.keys, 1, 2 * h.width},
      all{3, h.queries, 1, 8 * h.width};
  if (h.fused)
    spec.x = {lab.Make(all, r.x, RandomOf(all, 1, 1))};
  else
    spec.x = {lab.Make(q, r.x, RandomOf(q, 1, 1)), lab.Make(k, r.w, RandomOf(k, 1, 2)),
              lab.Make(k, r.x, RandomOf(k, 1, 3))};
  spec.y_style = both.Style(r.stochastic, 4, r.y_scale), spec.y_stats = lab.Share(TensorStats());
  spec.y = both.Out(q, r.y, spec.y_style);
  spec.p_format = r.y, spec.ds_format = r.dx;
  spec.p_style = both.Style(r.stochastic, 5, r.y_scale);
  spec.ds_style = both.Style(r.stochastic, 6, r.dx_scale);
  if (rounds) spec.p_stats = lab.Share(TensorStats()), spec.ds_stats = lab.Share(TensorStats());
  spec.ds_scale = lab.Share(1.0f);
  spec.dy = both.InGradient(q, r.dy, RandomOf(q, 1e-2, 7), 4);
  for (const Shape& shape : {q, k, k})
    spec.dx.push_back(
        both.OutGradient(shape, r.dx, both.Style(r.stochastic, 8 + spec.dx.size(), r.dx_scale)));
  for (scaling::LayerScaler*& scaler : spec.scalers) {
    scaling::LayerScaler rule;
    rule.rule.method = method, rule.rule.fan = 40, rule.rule.fixed_scale = 8;
    rule.rule.u_min = r.dx.smallest_subnormal(), rule.rule.u_max = r.dx.largest();
    rule.state.state_scale = 64;
    scaler = lab.Share(rule);
  }
  both.Steps(*lab->Make(spec), q);
}

// What is found of attention that is damaged on one side.
std::string FindInAttention(bool backward,
                            const std::function<void(const AttentionSpec&)>& damage) {
  const Mistake mistake{"attention", backward,
                        [&](const OpSpec& spec) { damage(std::get<AttentionSpec>(spec)); }};
  Agreement both(std::make_unique<BreakingBackend>(mistake));
  CheckAttention(AllRoles()[1], {21, 21, 8, true, true, false}, LayerMethod::kApproxRange, true,
                 std::move(both));
  return both.Take();
}
// Adds a share of the largest magnitude to a value in fp16.
void Move(const Tensor& t, std::int64_t i, float share) {
  auto* codes = reinterpret_cast<std::uint16_t*>(t.data);
  float largest = 0;
  for (std::int64_t k = 0; k < t.shape.numel(); ++k)
    largest = std::max(largest, std::fabs(DecodeFp16(codes[k])));
  codes[i] = EncodeFp16(DecodeFp16(codes[i]) + share * largest);
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("compare: attention whose values, counts or decisions are off") {
    const auto in = [](const std::string& found, const char* text) {
      CAPTURE(found);
      CHECK(found.find(text) != std::string::npos);
    };
    in(FindInAttention(false, [](const AttentionSpec& s) { Move(s.y, 5, 0.02f); }),
       "forward, y, value [n 0, h 0, w 0, c 5]");
    in(FindInAttention(true, [](const AttentionSpec& s) { Move(s.dx[0].tensor, 300, 0.02f); }),
       "backward, dq, value [n 0, h ");
    in(FindInAttention(true, [](const AttentionSpec& s) { Move(s.dx[2].tensor, 300, 0.02f); }),
       "backward, dv, value [n ");
    in(FindInAttention(
           true,
           [](const AttentionSpec& s) { s.scalers[AttentionSpec::kDs]->decision.unbound *= 1.02; }),
       "backward, decision, unbound");
    in(FindInAttention(false,
                       [](const AttentionSpec& s) {
                         if (s.p_stats->full) s.p_stats->underflow += s.p_stats->numel / 10;
                       }),
       "forward, p, underflow");
    CHECK(FindInAttention(false, [](const AttentionSpec& s) { Move(s.y, 5, 0x1p-12f); }).empty());
  }
}

TEST_SUITE(ADA_SUITE) {
  TEST_CASE("agreement: linear layers of sequences, embeddings, op by op") {
    int index = 0;
    for (const Roles& r : AllRoles()) {
      CAPTURE(index);
      ++index;
      CheckLinear(r, {3, 9, 1, 12}, 10, index % 2 == 0);
      CheckLinear(r, {3, 4, 3, 7}, 5, index % 2 == 1);
      CheckEmbedding(r);
    }
  }

  TEST_CASE("agreement: attention in every mixture of formats and styles") {
    int index = 0;
    for (const Roles& r : AllRoles()) {
      CAPTURE(index);
      ++index;
      CheckAttention(r, {21, 21, 8, true, true, false}, LayerMethod::kApproxRange, true);
      CheckAttention(r, {9, 14, 5, false, false, true}, LayerMethod::kExactRange, true);
      CheckAttention(r, {14, 9, 3, true, false, false}, LayerMethod::kFixed, index % 2 == 0);
    }
  }
}

}  // namespace ada::backend::test
