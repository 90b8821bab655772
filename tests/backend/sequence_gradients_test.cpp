// Gradients of layers of sequences on the CPU against finite differences of their forward pass.
#include <doctest/doctest.h>

#include "backend/finite_differences.h"
#include "backend/op_bench.h"

namespace ada::backend::test {
namespace {

constexpr float kScale = 8;
constexpr std::size_t kMost = 40;

// What a step of an op with this y and dy gives, to be checked.
template <class Spec>
Differences<Bench> StepOf(Bench& bench, Op& op, const Spec& spec, const Values& weights) {
  Pass pass = MakePass(static_cast<int>(spec.y.shape.n));
  pass.training = true;
  const auto forward = [&op, pass] { op.Forward(pass); };
  forward();
  op.Backward(pass);
  return DifferencesOf(bench, spec.y, weights, kMost, forward);
}
template <class Spec>
void Bind(Bench& bench, Spec& spec, const Shape& x, const Shape& y, const Values& weights) {
  spec.x = bench.Make(x, kFp32, Random(x, 1)), spec.y = bench.Make(y, kFp32);
  if constexpr (requires { spec.y_stats; }) spec.y_stats = bench.Stats();
  spec.dy = bench.MakeGradient(y, kFp32, Times(weights, kScale), kScale);
  spec.dx = bench.MakeGradient(x, kFp32);
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("gradients: rope, softmax, select") {
    Bench bench;
    const Shape shape{3, 7, 1, 12};
    const Values weights = Random(shape, 5);
    for (const bool interleaved : {false, true}) {
      RopeSpec rope;
      rope.heads = 2, rope.rotary = 4, rope.interleaved = interleaved, rope.base = 100;
      Bind(bench, rope, shape, shape, weights);
      const auto op = bench->Make(rope);
      StepOf(bench, *op, rope, weights).Check("dx", rope.x, rope.dx.tensor, kScale);
    }
    SoftmaxSpec softmax;
    Bind(bench, softmax, shape, shape, weights);
    const auto op = bench->Make(softmax);
    StepOf(bench, *op, softmax, weights).Check("dx", softmax.x, softmax.dx.tensor, kScale);
    SelectSpec select;
    select.position = 2;
    const Shape one{3, 1, 1, 12};
    Bind(bench, select, shape, one, Random(one, 6));
    select.dx.stats = nullptr;
    const auto selects = bench->Make(select);
    StepOf(bench, *selects, select, Random(one, 6)).Check("dx", select.x, select.dx.tensor, kScale);
  }

  TEST_CASE("gradients: RMS norm, position embedding, class token, embedding") {
    Bench bench;
    const Shape shape{3, 7, 1, 12}, longer{3, 8, 1, 12};
    const Values weights = Random(shape, 5);
    RmsNormSpec norm;
    Bind(bench, norm, shape, shape, weights);
    norm.gamma = bench.Vector(Normal(12, 1, 3)), norm.dgamma = bench.Vector(Values(12));
    const auto norms = bench->Make(norm);
    const auto by = StepOf(bench, *norms, norm, weights);
    by.Check("dx", norm.x, norm.dx.tensor, kScale);
    by.Check("dgamma", norm.gamma, norm.dgamma, 1);

    PositionEmbeddingSpec place;
    Bind(bench, place, shape, shape, weights);
    place.dx.stats = nullptr;
    const Shape table{9, 1, 1, 12};
    place.w = bench.Make(table, kFp32, Random(table, 4));
    place.dw = bench.Make(table, kFp32, Random(table, 7));
    const auto places = bench->Make(place);
    const auto by_place = StepOf(bench, *places, place, weights);
    by_place.Check("dx", place.x, place.dx.tensor, kScale);
    by_place.Check("dw", place.w, place.dw, 1);

    ClassTokenSpec token;
    Bind(bench, token, shape, longer, Random(longer, 5));
    token.dx.stats = nullptr;
    token.w = bench.Vector(Normal(12, 1, 3)), token.dw = bench.Vector(Values(12));
    const auto tokens = bench->Make(token);
    const auto by_token = StepOf(bench, *tokens, token, Random(longer, 5));
    by_token.Check("dx", token.x, token.dx.tensor, kScale);
    by_token.Check("dw", token.w, token.dw, 1);
  }

  TEST_CASE("gradients: attention, its heads in groups, masked and not, fused and not") {
    for (const bool causal : {false, true})
      for (const bool fused : {false, true}) {
        CAPTURE(causal);
        CAPTURE(fused);
        Bench bench;
        const Shape q{2, 37, 1, 20}, k{2, 37, 1, 10}, all{2, 37, 1, 40};
        const Values weights = Random(q, 5);
        AttentionSpec spec;
        spec.heads = 4, spec.kv_heads = 2, spec.causal = causal;
        spec.y = bench.Make(q, kFp32), spec.y_stats = bench.Stats();
        spec.p_stats = bench.Stats(), spec.ds_stats = bench.Stats();
        if (fused)
          spec.x = {bench.Make(all, kFp32, Random(all, 1))};
        else
          spec.x = {bench.Make(q, kFp32, Random(q, 1)), bench.Make(k, kFp32, Random(k, 2)),
                    bench.Make(k, kFp32, Random(k, 3))};
        spec.dy = bench.MakeGradient(q, kFp32, Times(weights, kScale), kScale);
        spec.dx = {bench.MakeGradient(q, kFp32), bench.MakeGradient(k, kFp32),
                   bench.MakeGradient(k, kFp32)};
        float ds_scale = 0;
        scaling::LayerScaler scalers[4];
        spec.ds_scale = &ds_scale;
        for (std::size_t i = 0; i < 4; ++i) spec.scalers[i] = &scalers[i];
        const auto op = bench->Make(spec);
        const auto by = StepOf(bench, *op, spec, weights);
        if (!fused) {
          const char* const names[] = {"dq", "dk", "dv"};
          for (std::size_t i = 0; i < 3; ++i)
            by.Check(names[i], spec.x[i], spec.dx[i].tensor, *spec.dx[i].scale);
          continue;
        }
        // Side by side, as the sum of branches puts them.
        BranchSumSpec sum;
        for (const Gradient& dx : spec.dx) sum.branches.push_back(dx);
        sum.first = {0, 20, 30};
        sum.sum = bench.MakeGradient(all, kFp32);
        bench->Make(sum)->Backward(MakePass(2));
        by.Check("dqkv", spec.x[0], sum.sum.tensor, *sum.sum.scale);
      }
  }
}

}  // namespace ada::backend::test
