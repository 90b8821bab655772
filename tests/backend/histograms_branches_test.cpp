// Histograms of sums of branches, at the scale that they end with; and when histograms are taken at
// all.
#include <doctest/doctest.h>

#include "backend/binned.h"

namespace ada::backend::test {
namespace {

// fp32 sums of branches, at scale `target`.
Values SumOf(const BranchSumSpec& s, float target, int rows) {
  Values sum(static_cast<std::size_t>(rows * s.sum.tensor.shape.per_image()));
  for (std::size_t k = 0; k < s.branches.size(); ++k) {
    const Values g = Bench::Get(s.branches[k].tensor);
    const float factor = target / *s.branches[k].scale;
    for (std::size_t i = 0; i < sum.size(); ++i)
      sum[i] = k == 0 ? g[i] * factor : sum[i] + g[i] * factor;
  }
  return sum;
}
void CheckBranches(float first, float second, float largest, float target, int threads) {
  CAPTURE(first);
  CAPTURE(second);
  const Shape shape{7, 16, 16, 19};
  const auto n = static_cast<std::size_t>(shape.numel());
  Bench bench(threads);
  Binned bins;
  BranchSumSpec s;
  for (const float scale : {first, second}) {
    Values values = Normal(n, 1e-3, s.branches.size());
    values[7] = largest;
    s.branches.push_back(bench.MakeGradient(shape, kFp16, values, scale));
    s.branches.back().moments = nullptr, s.branches.back().stats = nullptr;
  }
  s.sum = GradientFor(bench, shape, kFp16, bins);
  bench->Make(s)->Backward(Binning(6));
  CHECK(*s.sum.scale == target);
  CheckBins("sum", bins.bins, CountBins(SumOf(s, target, 6), static_cast<double>(target)));
  CHECK(bins.bins.numel() == 6 * shape.per_image());
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("histograms: sums of branches at the scale that they end with") {
    for (const int threads : {1, 2, 3}) {
      CAPTURE(threads);
      CheckBranches(3, 3, 1, 3, threads);
      CheckBranches(64, 1024, 1, 1024, threads);
      CheckBranches(8, 24, 1, 24, threads);
      CheckBranches(64, 64, 40000, 32, threads);  // the sum makes it halve
    }
  }

  // The last sum is of values that were rounded to fp16 on their way.
  TEST_CASE("histograms: sums of branches in the authors' way") {
    for (const bool rescale : {false, true}) {
      CAPTURE(rescale);
      const Shape shape{7, 16, 16, 19};
      const auto n = static_cast<std::size_t>(shape.numel());
      Bench bench;
      Binned bins;
      BranchSumSpec s;
      s.reference = true, s.rescale = rescale;
      for (const float scale : {4.0f, 64.0f}) {
        s.branches.push_back(bench.MakeGradient(
            shape, kFp16, Normal(n, 1e-3, static_cast<std::uint64_t>(scale)), scale));
        s.branches.back().moments = nullptr, s.branches.back().stats = nullptr;
      }
      s.sum = GradientFor(bench, shape, kFp16, bins);
      bench->Make(s)->Backward(Binning(6));
      const float target = *s.sum.scale;
      CHECK(target == (rescale ? 64 : 4));
      Values sum = First(Bench::Get(s.branches[0].tensor), 6, shape);
      const Values more = Bench::Get(s.branches[1].tensor);
      for (std::size_t i = 0; i < sum.size(); ++i)
        sum[i] = RoundTo(kFp16, sum[i] * (rescale ? 16 : 1)) + more[i];
      CheckBins("sum", bins.bins, CountBins(sum, static_cast<double>(target)));
    }
  }

  TEST_CASE("histograms: only in a pass that counts and asks; rows of the pass alone") {
    Bench bench;
    const Shape shape{9, 16, 16, 19};
    Binned bins;
    const ExponentBins untouched = bins.bins;
    AddSpec add;
    add.x = {bench.Make(shape, kFp32, Normal(static_cast<std::size_t>(shape.numel()), 1, 1))};
    add.y = bench.Make(shape, kFp16), add.y_stats = bench.Stats(), add.y_style = bins.style;
    const auto op = bench->Make(add);
    Pass pass = MakePass(9);
    op->Forward(pass);
    pass.bins = true, pass.count = false;
    op->Forward(pass);
    CHECK(bins.bins == untouched);
    for (const int rows : {9, 2, 5}) {
      pass = MakePass(rows);
      pass.bins = true;
      op->Forward(pass);
      CheckBins("y", bins.bins, ReferenceBins(add.x[0], rows));
    }
  }

  TEST_CASE("histograms: of a tensor whose statistics nobody counts") {
    Bench bench;
    const Shape shape{9, 16, 16, 19};
    Binned bins;
    bins.style.counted = false;
    AddSpec add;
    add.x = {bench.Make(shape, kFp32, Normal(static_cast<std::size_t>(shape.numel()), 1, 1))};
    add.y = bench.Make(shape, kFp16), add.y_stats = bench.Stats(), add.y_style = bins.style;
    bench->Make(add)->Forward(Binning(8));
    CheckBins("y", bins.bins, ReferenceBins(add.x[0], 8));
    CHECK_FALSE(add.y_stats->full);
    CHECK(add.y_stats->numel == 8 * shape.per_image());
    CHECK(add.y_stats->max_abs > 0);
  }

  // A step that is skipped: whatever the scale is, inf and NaN are counted.
  TEST_CASE("histograms: a gradient whose scale is no number") {
    for (const float scale : {INFINITY, NAN, 0.0f}) {
      Bench bench;
      const Shape shape{2, 4, 4, 3};
      Binned bins;
      DropoutSpec drop;
      drop.rate = 0;
      drop.x = bench.Make(shape, kFp16), drop.y = bench.Make(shape, kFp16);
      drop.dy = bench.MakeGradient(shape, kFp32, Values(96, NAN), scale);
      drop.dx = GradientFor(bench, shape, kFp16, bins);
      bench->Make(drop)->Backward(Binning(2));
      CHECK(bins.bins.nan == 96);
      CHECK(bins.bins.numel() == 96);
    }
  }
}

}  // namespace ada::backend::test
