// Histograms that ops take of their tensors, at every rounding point: of the values before
// rounding, without the scale that they carry. Every op runs twice, as in rounding_styles_test:
// with fp32 tensors, which leaves those values, and as tested.
#include <doctest/doctest.h>

#include "backend/binned.h"
#include "backend/naive_batch_norm.h"
#include "backend/naive_matmul.h"

namespace ada::backend::test {
namespace {

void CheckMatmul(const MatmulCase& c, int rows, float scale, int threads, float own) {
  Bench bench(threads);
  MatmulBench p(bench, c, kFp32, scale, 4);
  MatmulSpec& s = p.spec;
  s.w_format = kFp16;
  Bench::Set(s.dy.tensor, WildValues(static_cast<std::size_t>(c.y().numel()), 1e-4, 9, scale == 3));
  Values masters = Bench::Get(s.w);
  for (std::size_t i = 0; i < masters.size(); i += 5) masters[i] *= 0x1p-120f;
  Bench::Set(s.w, masters);
  p.Step(*p.MakeOp(bench), Drawing(rows));
  const ExponentBins y = ReferenceBins(s.y, rows), dx = ReferenceBins(s.dx, rows),
                     w = CountBins(masters, 1), dw = CountBins(Bench::Get(s.dw), 1);
  const Gradient before = s.dx;
  Binned y_bins(own), w_bins, dx_bins(own), dw_bins;
  s.y = MakeFor(bench, c.y(), kFp16, y_bins), s.y_style = y_bins.style;
  s.dx = GradientFor(bench, c.x, kFp16, dx_bins);
  s.w_style = w_bins.style, s.dw_style = dw_bins.style;
  s.dw_format = own != 0 ? kFp32 : kFp16;
  const auto op = p.MakeOp(bench);
  p.Step(*op, Binning(rows));
  CHECK(*s.dx.scale == *before.scale);
  CheckBins("y", y_bins.bins, y);
  CheckBins("w", w_bins.bins, w);
  CheckBins("dx", dx_bins.bins, dx);
  CheckBins("dw", dw_bins.bins, dw);
  CHECK(dx_bins.bins.numel() == s.dx.stats->numel);
  // The next micro-batch's dw is the sum.
  Pass pass = Binning(rows);
  pass.accumulate = true;
  p.Step(*op, pass);
  if (s.dw_format == kFp32) CheckBins("sum of dw", dw_bins.bins, CountBins(Bench::Get(s.dw), 1));
  CheckBins("dx again", dx_bins.bins, dx);
}

void CheckBatchNorm(float scale, int threads) {
  for (const bool addend : {false, true}) {
    const BatchNormCase c = {"bn", {9, 16, 16, 19}, 7, addend, false};
    Bench bench(threads);
    BatchNormBench b(bench, c, kFp32, scale);
    BatchNormSpec& s = b.spec;
    const Tensor other = s.addend;
    s.addend = Tensor{};
    const auto run = [&](const Pass& pass) {
      const auto op = bench->Make(s);
      op->Forward(pass);
      op->Backward(pass);
    };
    run(Drawing(c.rows));
    const ExponentBins y = ReferenceBins(s.out, c.rows), dx = ReferenceBins(s.dx, c.rows);
    Binned y_bins, sum_bins, dx_bins;
    const Values before = Bench::Get(s.out);
    s.out = bench.Make(c.x, kFp16), s.y_format = kFp16, s.y_style = y_bins.style;
    s.dx = GradientFor(bench, c.x, kFp16, dx_bins);
    if (addend) s.addend = bench.Make(c.x, kFp16, Bench::Get(other)), s.sum_style = sum_bins.style;
    run(Binning(c.rows));
    CheckBins("y", y_bins.bins, y);
    CheckBins("dx", dx_bins.bins, dx);
    if (!addend) continue;
    Values sum = First(before, c.rows, c.x);
    const Values more = Bench::Get(s.addend);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = RoundTo(kFp16, sum[i]) + more[i];
    CheckBins("sum", sum_bins.bins, CountBins(sum, 1));
  }
}

// An op with x, y, dy and dx. `own`: a scale of y's and dx's own.
template <class Spec, class Make>
void CheckPlain(const char* what, Spec spec, const Shape& x, const Shape& y, float scale, float own,
                int threads, Make&& make) {
  CAPTURE(what);
  Bench bench(threads);
  const int rows = static_cast<int>(x.n) - 1;
  const auto size = [](const Shape& shape) { return static_cast<std::size_t>(shape.numel()); };
  Binned y_bins(own), dx_bins(own);
  spec.x = bench.Make(x, kFp32, WildValues(size(x), 1, 1));
  spec.dy = bench.MakeGradient(y, kFp32, WildValues(size(y), 1e-3, 2), scale);
  Spec tested = spec;
  spec.y = bench.Make(y, kFp32), spec.dx = bench.MakeGradient(x, kFp32);
  tested.dx = GradientFor(bench, x, kFp16, dx_bins);
  tested.y = bench.Make(y, kFp32);
  if constexpr (requires { tested.y_style; }) {
    tested.y = MakeFor(bench, y, kFp16, y_bins), tested.y_stats = bench.Stats();
    tested.y_style = y_bins.style;
  }
  for (const Spec* s : {static_cast<const Spec*>(&spec), static_cast<const Spec*>(&tested)}) {
    const auto op = make(bench, *s);
    op->Forward(Binning(rows));
    op->Backward(Binning(rows));
  }
  CHECK(*tested.dx.scale == *spec.dx.scale);
  CheckBins("dx", dx_bins.bins, ReferenceBins(spec.dx, rows));
  if constexpr (requires { tested.y_style; })
    CheckBins("y", y_bins.bins, ReferenceBins(spec.y, rows));
}
void CheckPlainOps(float scale, float own, int threads) {
  const Shape x{7, 16, 16, 19}, half{7, 8, 8, 19};
  DropoutSpec drop;
  drop.rate = 0.3f, drop.stream = 9;
  CheckPlain("dropout", drop, x, x, scale, own, threads,
             [](Bench& b, const DropoutSpec& s) { return b->Make(s); });
  MaxPoolSpec max;
  max.kernel = {3, 3}, max.stride = {2, 2}, max.padding = {1, 1};
  CheckPlain("max pool", max, x, half, scale, own, threads,
             [](Bench& b, const MaxPoolSpec& s) { return b->Make(s); });
  AvgPoolSpec avg;
  avg.kernel = max.kernel, avg.stride = max.stride, avg.padding = max.padding;
  const auto make_avg = [](Bench& b, const AvgPoolSpec& s) { return b->Make(s); };
  CheckPlain("average pool", avg, x, half, scale, own, threads, make_avg);
  avg.kernel = avg.stride = {1, 1}, avg.padding = {0, 0};
  const Shape large{2, 40, 33, 19}, wide{3, 1, 2, 5001};  // more vectors than a segment has
  CheckPlain("average pool, large", avg, large, large, scale, own, threads, make_avg);
  CheckPlain("average pool, wide", avg, wide, wide, scale, own, threads, make_avg);
  scaling::LayerScaler scaler;
  scaler.rule.method = scaling::LayerMethod::kFixed, scaler.rule.fixed_scale = 8;
  ScaleSpec cast;
  cast.scaler = &scaler;
  CheckPlain("scale", cast, x, x, scale, own, threads,
             [](Bench& b, const ScaleSpec& s) { return b->Make(s); });
}

void CheckSumsAndInputs(float own, int threads) {
  const Shape shape{7, 16, 16, 19};
  const auto n = static_cast<std::size_t>(shape.numel());
  Bench bench(threads);
  Binned add_bins(own), input_bins(own);
  AddSpec add;
  Values sum(n);
  for (std::size_t i = 0; i < 3; ++i) {
    add.x.push_back(bench.Make(shape, kFp32, WildValues(n, 1e-3, i)));
    const Values x = Bench::Get(add.x[i]);
    for (std::size_t k = 0; k < n; ++k) sum[k] = i == 0 ? x[k] : sum[k] + x[k];
  }
  add.y = MakeFor(bench, shape, kFp16, add_bins), add.y_style = add_bins.style;
  add.y_stats = bench.Stats();
  bench->Make(add)->Forward(Binning(6));
  CheckBins("add", add_bins.bins, CountBins(First(sum, 6, shape), 1));

  InputSpec input;
  input.y = MakeFor(bench, shape, kFp16, input_bins), input.y_style = input_bins.style;
  input.y_stats = bench.Stats();
  const auto op = bench->MakeInput(input);
  op->SetImages(sum.data(), 6);
  op->Forward(Binning(6));
  CheckBins("input", input_bins.bins, CountBins(First(sum, 6, shape), 1));
}

void CheckLoss(float scale, int threads) {
  const Shape shape{3000, 1, 1, 11};
  Bench bench(threads);
  Binned bins;
  ClassLossSpec s;
  s.logits = bench.Make(shape, kFp32, Normal(static_cast<std::size_t>(shape.numel()), 9, 1));
  s.dlogits = bench.MakeGradient(shape, kFp32);
  const std::vector<std::int32_t> labels(2900, 3);
  Pass pass = Binning(2900);
  const auto run = [&] {
    const auto op = bench->MakeLoss(s);
    op->SetTargets({labels.data()}, 2900);
    op->Forward(pass);
    op->Backward(pass);
  };
  pass.loss_scale = scale;
  run();
  const ExponentBins want = ReferenceBins(s.dlogits, 2900);
  s.dlogits = GradientFor(bench, shape, kFp16, bins);
  run();
  CheckBins("logit gradient", bins.bins, want);
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("histograms: convolution and linear, dw rounded and not") {
    const std::array<int, 2> one = {1, 1}, three = {3, 3};
    const MatmulCase conv{"conv", {11, 16, 16, 5}, 20, three, one, one, one, 1, true};
    const MatmulCase linear = LinearCase("linear", {300, 1, 1, 64}, 33, false);
    for (const float scale : kScales)
      for (const int threads : {1, 2, 3}) {
        CAPTURE(scale);
        CAPTURE(threads);
        CheckMatmul(conv, 9, scale, threads, threads == 2 ? 13.0f : 0.0f);
        CheckMatmul(linear, 290, scale, threads, threads == 3 ? 640.0f : 0.0f);
      }
  }
  TEST_CASE("histograms: batch norm, pools, dropout, casts, sums, input, loss") {
    for (const float scale : kScales)
      for (const int threads : {1, 2, 3}) {
        CAPTURE(scale);
        CAPTURE(threads);
        CheckBatchNorm(scale, threads);
        for (const float own : {0.0f, 13.0f}) CheckPlainOps(scale, own, threads);
        CheckLoss(scale, threads);
      }
    for (const int threads : {1, 2, 3})
      for (const float own : {0.0f, 13.0f}) CheckSumsAndInputs(own, threads);
  }
}

}  // namespace ada::backend::test
