// Rounding points one by one: when styles act, what is counted and noted there, and how sums of
// micro-batches are rounded.
#include <doctest/doctest.h>

#include "backend/naive_count.h"
#include "backend/naive_matmul.h"
#include "backend/styles.h"

namespace ada::backend::test {

TEST_SUITE("cpu") {
  TEST_CASE("styles: evaluation rounds to nearest; refreshed weights draw anew") {
    Bench bench;
    const MatmulCase c = LinearCase("linear", {9, 1, 1, 64}, 10, false);
    MatmulBench p(bench, c, kFp16, 1, 1);
    const Style stochastic(true, 5);
    p.spec.y_style = p.spec.w_style = stochastic.style;
    p.spec.w_format = kFp8E4M3;
    const auto op = p.MakeOp(bench);
    Pass pass = Drawing(9);
    p.Step(*op, pass);
    const Values first = Bench::Get(p.spec.y);
    p.Step(*op, pass);
    CheckEqual(p.spec.y, first);
    ++pass.draw;
    op->RefreshWeights(pass);
    op->Forward(Drawing(9));
    CHECK(FirstDifference(Bench::Get(p.spec.y), first) >= 0);
    pass.training = false;
    op->RefreshWeights(pass);
    op->Forward(pass);
    p.spec.y_style = p.spec.w_style = RoundingStyle{};
    const Values evaluated = Bench::Get(p.spec.y);
    p.Step(*p.MakeOp(bench), pass);
    CheckEqual(p.spec.y, evaluated);
  }

  TEST_CASE("styles: the input is rounded by its own style, and noted") {
    const Shape shape{9, 16, 16, 3};
    const Values images = Normal(static_cast<std::size_t>(shape.numel()), 1, 1);
    for (const bool stochastic : {false, true})
      for (const float scale : {0.0f, 13.0f})
        for (const bool noted : {false, true}) {
          CAPTURE(stochastic);
          CAPTURE(scale);
          CAPTURE(noted);
          Bench bench;
          const Style style(stochastic, 7, scale);
          InputSpec spec;
          spec.y = MakeFor(bench, shape, kFp8E4M3, style), spec.y_style = style.style;
          if (noted) spec.y_stats = bench.Stats();
          const auto op = bench->MakeInput(spec);
          op->SetImages(images.data(), 7);
          op->Forward(Drawing(7));
          CheckRounded("input", spec.y, style, images, 7);
          if (!noted) continue;
          float largest = 0;
          for (const float v : First(images, 7, shape)) largest = std::max(largest, std::fabs(v));
          CHECK(spec.y_stats->max_abs == largest);
          CHECK(spec.y_stats->numel == 7 * shape.per_image());
        }
  }

  // They lie on a grid that has a per-tensor scale, unknown to those who hand them on.
  TEST_CASE("styles: gradients without stats are exact and stay as they are") {
    Bench bench;
    const Shape shape{7, 8, 8, 19};
    const auto n = static_cast<std::size_t>(shape.numel());
    ReluSpec relu;
    relu.x = relu.y = bench.Make(shape, kFp16, Values(n, 1));
    relu.dy = bench.MakeGradient(shape, kFp32, Normal(n, 1, 1), 1);
    relu.dx = bench.MakeGradient(shape, kFp32);
    relu.dy.tensor.format = relu.dx.tensor.format = kFp8E5M2;
    relu.dx.stats = nullptr;
    const auto op = bench->Make(relu);
    op->Backward(MakePass(7));
    CheckEqual(relu.dx.tensor, Bench::Get(relu.dy.tensor));
    CheckMoments(*relu.dx.moments, Bench::Get(relu.dy.tensor));
  }

  TEST_CASE("styles: counts are of scaled values, figures of unscaled, moments of stored ones") {
    const MatmulCase c = LinearCase("linear", {300, 1, 1, 64}, 64, false);
    Bench bench;
    MatmulBench p(bench, c, kFp16, 8, 1);
    p.spec.y = bench.Make(c.y(), kFp32), p.spec.dx = bench.MakeGradient(c.x, kFp32);
    p.Step(*p.MakeOp(bench), MakePass(300));
    const Values y = Bench::Get(p.spec.y), dx = Bench::Get(p.spec.dx.tensor);
    const Style y_style(false, 0, 100), dx_style(false, 0, 0x1p-9f);
    p.spec.y = bench.MakeF32(c.y(), kFp8E4M3), p.spec.y_style = y_style.style;
    p.spec.dx = GradientFor(bench, c.x, kFp8E5M2, dx_style);
    p.Step(*p.MakeOp(bench), MakePass(300));
    CheckStats(*p.spec.y_stats, kFp8E4M3, y, 100);
    CheckStats(*p.spec.dx.stats, kFp8E5M2, dx, 0x1p-9f);
    CHECK(p.spec.y_stats->overflow > 0);
    CheckMoments(*p.spec.dx.moments, Bench::Get(p.spec.dx.tensor));
  }

  TEST_CASE("counts: above the edge, and the smallest magnitude that is stored") {
    for (const Kind& kind : MainKinds()) {
      CAPTURE(kind.name);
      Bench bench;
      AddSpec add;
      const Shape shape{9, 16, 16, 19};
      const auto n = static_cast<std::size_t>(shape.numel());
      add.x = {bench.Make(shape, kFp32, Spread(kind.format, n, 1))};
      add.y = bench.Make(shape, kind.format), add.y_stats = bench.Stats();
      Pass pass = MakePass(9);
      pass.edge = 0.125;
      bench->Make(add)->Forward(pass);
      BranchSumSpec sum;
      sum.branches = {bench.MakeGradient(shape, kFp32, Bench::Get(add.x[0]), 1)};
      sum.sum = bench.MakeGradient(shape, kind.format);
      sum.branches[0].moments = nullptr;
      std::int64_t above = 0;
      float smallest = std::numeric_limits<float>::infinity();
      for (const float v : Bench::Get(add.y)) {
        above += std::fabs(static_cast<double>(v)) > 0.125 * kind.format.largest();
        if (v != 0) smallest = std::min(smallest, std::fabs(v));
      }
      CHECK(add.y_stats->above_edge == above);
      CHECK(above > 0);
      Values small = Bench::Get(add.x[0]);
      for (float& v : small) v = std::isfinite(RoundTo(kind.format, v)) ? v : 0;
      Bench::Set(sum.branches[0].tensor, small);
      bench->Make(sum)->Backward(pass);
      CHECK(sum.sum.moments->min_abs == smallest);
      pass.edge = INFINITY;
      bench->Make(add)->Forward(pass);
      CHECK(add.y_stats->above_edge == 0);
    }
  }

  TEST_CASE("weight gradients: each sum of micro-batches is rounded to their format") {
    for (const NumberFormat& format : {kFp16, kBf16, kFp8E5M2})
      for (const bool bias : {false, true}) {
        CAPTURE(FormatName(format));
        const MatmulCase c = LinearCase("linear", {40, 1, 1, 300}, 70, bias);
        Bench bench;
        MatmulBench p(bench, c, kFp16, 64, 1);
        p.Step(*p.MakeOp(bench), MakePass(40));
        const Values once = Bench::Get(p.spec.dw);
        p.spec.dw_format = format;
        const auto op = p.MakeOp(bench);
        Pass pass = MakePass(40);
        Values want;
        for (int step = 0; step < 3; ++step) {
          pass.accumulate = step > 0;
          p.Step(*op, pass);
          for (std::size_t i = 0; i < once.size(); ++i)
            if (step == 0)
              want.push_back(RoundTo(format, once[i]));
            else
              want[i] = RoundTo(format, want[i] + once[i]);
          CheckEqual(p.spec.dw, want);
        }
      }
  }
}

}  // namespace ada::backend::test
