// Convolution and linear ops against loops in double: values, gradients, scales, tails,
// accumulation.
#include <doctest/doctest.h>

#include "backend/naive_count.h"
#include "backend/naive_matmul.h"

namespace ada::backend::test {
namespace {

Values RoundedWeights(const MatmulSpec& spec) {
  Values w = Bench::Get(spec.w);
  for (float& v : w) v = RoundTo(spec.w_format, v);
  return w;
}
NaiveMatmul Naive(const MatmulBench& p, int rows) {
  const MatmulSpec& s = p.spec;
  return ComputeNaively(p.product, rows, Bench::Get(s.x), RoundedWeights(s),
                        s.b ? Bench::Get(s.b) : Values{}, Bench::Get(s.dy.tensor));
}
void Scale(Sums& sums, double factor) {
  for (Exact& sum : sums) sum *= factor;
}
double LargestOf(const Sums& sums) {
  double largest = 0;
  for (const Exact& sum : sums) largest = std::max(largest, std::fabs(sum.value));
  return largest;
}

// A step over `rows` images, checked value by value. S = 8 comes in, alpha = 4, so S = 32 goes out.
void CheckStep(const MatmulCase& c, const NumberFormat& format, int rows) {
  CAPTURE(c.name);
  CAPTURE(FormatName(format));
  CAPTURE(rows);
  constexpr float kScale = 8, kAlpha = 4;
  Bench bench;
  MatmulBench p(bench, c, format, kScale, kAlpha);
  const std::unique_ptr<Op> op = p.MakeOp(bench);
  p.Step(*op, MakePass(rows));
  NaiveMatmul want = Naive(p, rows);
  Scale(want.dx, kAlpha), Scale(want.dw, 1 / kScale), Scale(want.db, 1 / kScale);
  CheckTensor(p.spec.y, want.y);
  CheckTensor(p.spec.dx.tensor, want.dx);
  CheckTensor(p.spec.dw, want.dw);
  if (c.bias) CheckTensor(p.spec.db, want.db);
  CHECK(*p.spec.dx.scale == kScale * kAlpha);
  CHECK(p.spec.y_stats->numel == rows * c.y().per_image());
  CHECK(p.spec.dx.stats->numel == rows * c.x.per_image());
  CHECK(p.spec.dw_stats->numel == c.w().numel());
  CHECK(p.spec.w_stats->numel == c.w().numel());
  CHECK(Near(static_cast<double>(p.spec.y_stats->max_abs), LargestOf(want.y), 1e-4));
  CHECK(Near(static_cast<double>(p.spec.dx.stats->max_abs), LargestOf(want.dx), 1e-3));
  CHECK(Near(static_cast<double>(p.spec.dw_stats->max_abs), LargestOf(want.dw), 1e-3));
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("products: every kind of layer, whole batches and tails") {
    for (const MatmulCase& c : SmallMatmuls())
      for (const Kind& kind : MainKinds()) {
        CheckStep(c, kind.format, static_cast<int>(c.x.n));
        CheckStep(c, kind.format, static_cast<int>(c.x.n) - 1);
        CheckStep(c, kind.format, 1);
      }
  }

  TEST_CASE("products: transposed convolutions, whole batches and tails") {
    for (const MatmulCase& c : TransposedMatmuls())
      for (const Kind& kind : MainKinds()) {
        CheckStep(c, kind.format, static_cast<int>(c.x.n));
        CheckStep(c, kind.format, 1);
      }
    CheckStep(Transposed({"chunks", {11, 16, 16, 16}, 16, {2, 2}, {2, 2}, {0, 0}, {1, 1}, 1, true}),
              kFp16, 10);
  }

  TEST_CASE("products: several chunks and groups, the last one partial") {
    const std::array<int, 2> one = {1, 1}, three = {3, 3};
    const MatmulCase wide{"chunks of 4", {11, 32, 32, 16}, 16, three, one, one, one, 1, true};
    const MatmulCase flat = LinearCase("chunks of 256", {700, 1, 1, 64}, 10, true);
    for (const Kind& kind : MainKinds()) {
      CheckStep(flat, kind.format, 700);
      CheckStep(flat, kind.format, 513);
    }
    CheckStep(wide, kFp16, 11);
    CheckStep(wide, kFp32, 6);
  }

  TEST_CASE("products: one op serves batches of changing size") {
    const MatmulCase c = SmallMatmuls()[1];
    Bench bench;
    MatmulBench p(bench, c, kFp16, 1, 1);
    const std::unique_ptr<Op> op = p.MakeOp(bench);
    for (const int rows : {5, 2, 5, 1, 4}) {
      CAPTURE(rows);
      Bench::Set(p.spec.y, Values(static_cast<std::size_t>(c.y().numel()), -7.0f));
      p.Step(*op, MakePass(rows));
      const NaiveMatmul want = Naive(p, rows);
      CheckTensor(p.spec.y, want.y, kSumError, -7.0f);
      CheckTensor(p.spec.dw, want.dw);
    }
  }

  TEST_CASE("products: accumulate adds the unscaled gradients, else they are replaced") {
    for (const MatmulCase& c :
         {SmallMatmuls()[2], SmallMatmuls()[19], SmallMatmuls()[20], TransposedMatmuls()[0]}) {
      CAPTURE(c.name);
      Bench bench;
      MatmulBench p(bench, c, kFp16, 4, 1);
      const std::unique_ptr<Op> op = p.MakeOp(bench);
      Pass pass = MakePass(static_cast<int>(c.x.n));
      p.Step(*op, pass);
      NaiveMatmul want = Naive(p, pass.rows);
      pass.accumulate = true;
      p.Step(*op, pass);
      p.Step(*op, pass);
      Scale(want.dw, 3.0 / 4), Scale(want.db, 3.0 / 4);
      CheckTensor(p.spec.dw, want.dw);
      if (c.bias) CheckTensor(p.spec.db, want.db);
      pass.accumulate = false;
      p.Step(*op, pass);
      Scale(want.dw, 1.0 / 3);
      CheckTensor(p.spec.dw, want.dw);
    }
  }

  TEST_CASE("products: new masters are used after RefreshWeights") {
    Bench bench;
    MatmulBench p(bench, SmallMatmuls()[0], kFp16, 1, 1);
    const std::unique_ptr<Op> op = p.MakeOp(bench);
    p.Step(*op, MakePass(5));
    const Values before = Bench::Get(p.spec.y);
    Bench::Set(p.spec.w, Normal(static_cast<std::size_t>(p.spec.w.shape.numel()), 0.3, 99));
    op->Forward(MakePass(5));
    if (p.spec.y.format != kFp32) CheckEqual(p.spec.y, before);
    p.Step(*op, MakePass(5));
    CheckTensor(p.spec.y, Naive(p, 5).y);
  }

  TEST_CASE("products: without dx no scaler is asked; without dy the op only evaluates") {
    for (const MatmulCase& c :
         {SmallMatmuls()[0], SmallMatmuls()[20], SmallMatmuls()[23], TransposedMatmuls()[0]}) {
      CAPTURE(c.name);
      Bench bench;
      MatmulBench p(bench, c, kFp16, 2, 4);
      p.spec.dx = Gradient{}, p.spec.scaler = nullptr;
      const std::unique_ptr<Op> first = p.MakeOp(bench);
      p.Step(*first, MakePass(3));
      NaiveMatmul want = Naive(p, 3);
      Scale(want.dw, 0.5);
      CheckTensor(p.spec.dw, want.dw);
      p.spec.dy = Gradient{}, p.spec.dw = p.spec.db = Tensor{};
      p.spec.y_stats = p.spec.w_stats = p.spec.dw_stats = nullptr;
      p.spec.y = bench.Make(c.y(), kFp16);
      const std::unique_ptr<Op> evaluation = p.MakeOp(bench);
      Pass pass = MakePass(3);
      pass.training = false;
      evaluation->RefreshWeights({});
      evaluation->Forward(pass);
      CheckTensor(p.spec.y, want.y);
    }
  }
}

}  // namespace ada::backend::test
