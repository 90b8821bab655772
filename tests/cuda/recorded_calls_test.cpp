// Recorded calls of the authors' program, decided where the gradients are: its dy and w go through
// an op, and the decision that is read back is the recorded one under `reference: true`, and the
// host's for the same values without. Branch points likewise.
//
// A rule knows no places: a convolution is the linear layer of its pixels ([n, out, h, w] as n * h
// * w rows of `out`, w as [out, all others]), with the same moments, logarithms and products.
#include "scaling/recorded_calls.h"

#include <doctest/doctest.h>

#include "backend/recorded.h"
#include "cuda/on_both.h"

namespace ada::backend::test {
namespace {

using ada::testing::ForRecordedCalls;
using ada::testing::GoldenRow;
using ada::testing::RecordedCall;
using ada::testing::RecordedTensor;
using scaling::DecisionError;
using scaling::LayerMethod;
using scaling::LayerScaler;
using scaling::Limit;

NumberFormat FormatOf(const RecordedTensor& t) { return t.fp16 ? kFp16 : kFp32; }
std::int64_t Count(const Values& values) { return static_cast<std::int64_t>(values.size()); }

Gradient GradientOf(Lab& lab, const Shape& shape, const RecordedCall& call, const Values& values) {
  Gradient dy = lab.MakeGradient(shape, FormatOf(call.dy), call.scale_in(), values);
  dy.moments = lab.Share(ada::testing::MomentsOf(call.dy));
  return dy;
}
// One backward pass of `op`, the weights' copy made anew before it.
void Step(Op& op, std::int64_t rows) {
  Pass pass;
  pass.rows = static_cast<int>(rows), pass.loss_terms = rows;
  op.RefreshWeights(pass);
  op.Backward(pass);
}

void RunCast(Lab& lab, const RecordedCall& call, LayerScaler* scaler) {
  const Shape shape = {1, 1, 1, Count(call.dy.values)};
  ScaleSpec spec;
  spec.x = lab.Make(shape, kFp16), spec.y = lab.Make(shape, FormatOf(call.dy));
  spec.dy = GradientOf(lab, shape, call, call.dy.values);
  spec.dx = lab.MakeGradient(shape, kFp16);
  spec.scaler = scaler;
  Step(*lab->Make(spec), 1);
}

void RunLayer(Lab& lab, const RecordedCall& call, bool reference, LayerScaler* scaler) {
  const std::int64_t out = call.w.shape[0], in = Count(call.w.values) / out;
  const std::int64_t images = call.dy.shape[0], rows = Count(call.dy.values) / out;
  const std::int64_t pixels = rows / images;
  Values dy;
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t k = 0; k < out; ++k) {
      const std::int64_t from = (row / pixels * out + k) * pixels + row % pixels;
      dy.push_back(call.dy.values[static_cast<std::size_t>(from)]);
    }
  LinearSpec spec;
  spec.layer = call.row.at("case");
  spec.x = lab.Make({rows, 1, 1, in}, kFp16), spec.y = lab.Make({rows, 1, 1, out}, kFp16);
  spec.w = lab.Make({out, 1, 1, in}, kFp32, call.w.values);
  spec.w_format = FormatOf(call.w), spec.dw = lab.Make(spec.w.shape, kFp32);
  spec.dy = GradientOf(lab, spec.y.shape, call, dy);
  spec.dx = lab.MakeGradient(spec.x.shape, kFp16);
  spec.reference = reference, spec.scaler = scaler;
  Step(*lab->Make(spec), rows);
}

// The bound of the unbound value, relative; 0: to the last bit. Moments of dy are given, extremes
// and products are exact; the squares of w and logarithms are summed by the backend, in double.
double BoundOf(const scaling::LayerRule& rule) {
  const bool squares = rule.method == LayerMethod::kApproxRange && rule.has_weight;
  return squares || rule.method == LayerMethod::kLognormal ? 1e-9 : 0;
}

// check(call, scaler) with what the backend under test made of each call.
template <class Check>
void Replay(bool reference, Check&& check) {
  Lab lab(MakeBackendUnderTest());
  LayerScaler* scaler = nullptr;
  ForRecordedCalls([&](const RecordedCall& call) {
    if (call.first())
      scaler = lab.Share(LayerScaler{ada::testing::RuleOf(call.row, reference), {}, {}});
    if (call.w.values.empty())
      RunCast(lab, call, scaler);
    else
      RunLayer(lab, call, reference, scaler);
    check(call, lab.Fetched(scaler));
  });
}

// Python's sums begin with a zero, so that none is -0: zeros are equal here.
Values WithoutNegativeZeros(Values values) {
  for (float& v : values) v += 0.0f;
  return values;
}

BranchSumSpec BranchesOf(Lab& lab, const Recorded& recorded, const GoldenRow& row) {
  BranchSumSpec spec;
  for (const std::string& scale : ada::testing::Words(row.at("scales"))) {
    const RecordedTensor g = ada::testing::ReadTensor(
        recorded.file, row.at("case") + ".g" + std::to_string(spec.branches.size()));
    spec.branches.push_back(
        lab.MakeGradient({1, 1, 1, Count(g.values)}, FormatOf(g), std::stof(scale), g.values));
    spec.branches.back().moments = nullptr, spec.branches.back().stats = nullptr;
  }
  const Tensor& first = spec.branches[0].tensor;
  spec.sum = lab.MakeGradient(first.shape, first.format);
  spec.decision = lab.Share<scaling::ScaleDecision>();
  spec.reference = true, spec.rescale = row.at("method") == "approx_range";
  return spec;
}

}  // namespace

TEST_SUITE(ADA_SUITE) {
  TEST_CASE("recorded calls: with reference: true every stage of every call") {
    int calls = 0, errors = 0, updates = 0;
    Replay(true, [&](const RecordedCall& call, const LayerScaler& scaler) {
      ada::testing::CheckStages(scaler.decision, call.row);
      ++calls;
      errors += scaler.decision.error != DecisionError::kNone;
      updates += call.row.at("updating") == "1";
    });
    CHECK(calls == 178);
    CHECK(errors == 20);
    CHECK(updates == 154);
  }

  TEST_CASE("recorded calls: ours as the host decides") {
    LayerScaler host;
    int calls = 0, nonfinite = 0, exact = 0;
    Replay(false, [&](const RecordedCall& call, const LayerScaler& scaler) {
      if (call.first()) host = LayerScaler{ada::testing::RuleOf(call.row, false), {}, {}};
      scaling::Decide(host, call.Observe(), call.scale_in());
      const scaling::ScaleDecision &want = host.decision, &got = scaler.decision;
      CHECK(got.error == DecisionError::kNone);
      CHECK(got.alpha == want.alpha);
      CHECK(got.limit == want.limit);
      CHECK(got.scale_out == want.scale_out);
      CHECK(scaler.state.calls == host.state.calls);
      if (want.limit == Limit::kNonfinite)
        CHECK((std::isnan(got.unbound) && std::isnan(want.unbound)));
      else
        CHECK(std::fabs(got.unbound / want.unbound - 1) <= BoundOf(host.rule));
      ++calls;
      exact += BoundOf(host.rule) == 0;
      nonfinite += want.limit == Limit::kNonfinite;
    });
    CHECK(calls == 178);
    CHECK(nonfinite == 7);
    CHECK(exact == 67);
  }

  TEST_CASE("recorded branch points: the common scale and the sum") {
    const Recorded recorded("rescaling");
    Lab lab(MakeBackendUnderTest());
    Pass pass;
    pass.rows = 1;
    int sums = 0, errors = 0, as_they_are = 0;
    for (const GoldenRow& row : recorded.table.rows) {
      CAPTURE(row.at("case"));
      const BranchSumSpec spec = BranchesOf(lab, recorded, row);
      lab->Make(spec)->Backward(pass);
      const bool fails = lab.Fetched(spec.decision).error != DecisionError::kNone;
      CHECK(fails == !row.at("error").empty());
      errors += fails;
      if (fails) continue;
      CHECK(static_cast<double>(lab.Fetched(spec.sum.scale)) ==
            ada::testing::Number(row, "sum_scale"));
      const Values want = recorded.file.ReadF32(row.at("case") + ".sum");
      CHECK(FirstDifference(WithoutNegativeZeros(lab.Get(spec.sum.tensor)),
                            WithoutNegativeZeros(want)) == -1);
      (spec.rescale ? sums : as_they_are) += 1;
    }
    CHECK(sums == 26);
    CHECK(errors == 3);
    CHECK(as_they_are == 2);
  }
}

}  // namespace ada::backend::test
