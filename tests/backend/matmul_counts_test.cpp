// What products count and note at their roundings: every count, extreme, moment and histogram bin
// against counting value by value, on sums that are exact whatever their order.
#include <doctest/doctest.h>

#include <algorithm>

#include "backend/matmul_exact.h"
#include "backend/naive_bins.h"
#include "backend/naive_count.h"

namespace ada::backend::test {
namespace {

constexpr float kScale = 4;
constexpr double kAlpha = 8;

void CheckRounded(const char* what, const Tensor& t, const Values& before) {
  CAPTURE(std::string(what));
  const Values got = Bench::Get(t), want = RoundAll(t.format, before);
  const std::int64_t at = FirstWrong(got, want, before);
  const auto i = static_cast<std::size_t>(std::max<std::int64_t>(at, 0));
  CHECK_MESSAGE(at == -1,
                "[" << i << "] = " << got[i] << ", wanted " << want[i] << ", before " << before[i]);
}

void CheckNotes(const char* what, const Tensor& t, const TensorStats& stats,
                const ExponentBins& bins, double scale, const Values& before) {
  CAPTURE(std::string(what));
  CheckRounded(what, t, before);
  CheckStats(stats, t.format, before);
  CheckBins(what, bins, CountBins(before, scale));
}

// Only numel and the largest magnitude are noted.
void CheckQuiet(const char* what, const Tensor& t, const TensorStats& stats, const Values& before) {
  CheckRounded(what, t, before);
  float largest = 0;
  for (const float v : before) largest = std::max(largest, std::fabs(v));
  CHECK(!stats.full);
  CHECK(stats.numel == static_cast<std::int64_t>(before.size()));
  CHECK(stats.max_abs == largest);
  CHECK(stats.underflow + stats.overflow + stats.subnormal + stats.zeros_before == 0);
}

bool AnyNan(const Values& values) {
  return std::any_of(values.begin(), values.end(), [](float v) { return std::isnan(v); });
}

void CheckCountsOnce(const MatmulCase& c, const FormatSet& f, Exact32 kind, int rows,
                     std::uint64_t seed) {
  CAPTURE(Text(c));
  CAPTURE(f.name);
  CAPTURE(Name(kind));
  CAPTURE(rows);
  CAPTURE(seed);
  Bench bench;
  const ExactInputs in(c, f.formats, kind, rows, seed);
  ExactBench p(bench, c, f.formats, in, kScale, kAlpha);
  ExponentBins y, w, dx, dw;
  p.spec.y_style.bins = &y, p.spec.w_style.bins = &w, p.spec.dx.style.bins = &dx;
  p.spec.dw_style.bins = &dw, p.spec.dw_format = kFp16;
  Pass pass = MakePass(rows);
  pass.bins = true;
  p.Step(*p.MakeOp(bench), pass);
  const NaiveMatmul want = ComputeNaively(c, rows, in.x, in.w, in.b, in.dy);
  const MatmulSpec& s = p.spec;
  CheckNotes("y", s.y, *s.y_stats, y, 1, ExactValues(want.y));
  CheckNotes("dx", s.dx.tensor, *s.dx.stats, dx, static_cast<double>(*s.dx.scale),
             ExactValues(want.dx, kAlpha));
  Values stored = Bench::Get(s.dx.tensor);
  stored.resize(want.dx.size());
  if (!AnyNan(stored)) CheckMoments(*s.dx.moments, stored);  // extremes beside a NaN say nothing
  CheckBins("w", w, CountBins(in.w, 1));
  if (kind == Exact32::kSpread) return;
  const Values before_dw = ExactValues(want.dw, 1 / static_cast<double>(kScale));
  CheckStats(*s.dw_stats, kFp16, before_dw);
  CheckBins("dw", dw, CountBins(before_dw, 1));
  const Values got_dw = Bench::Get(s.dw);
  CHECK(FirstWrong(got_dw, RoundAll(kFp16, before_dw), before_dw) == -1);
  if (c.bias) CheckRounded("db", s.db, ExactValues(want.db, 1 / static_cast<double>(kScale)));
}

void CheckCounts(const MatmulCase& c, const FormatSet& f, Exact32 kind, int rows,
                 std::uint64_t seed) {
  CheckCountsOnce(c, f, kind, rows, seed);
  if (!MayUseWinograd(c)) return;
  const DirectMatmuls direct;
  CheckCountsOnce(c, f, kind, rows, seed);
}

constexpr Exact32 kKinds[] = {Exact32::kUniform, Exact32::kSpread, Exact32::kSparse};

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("tile counts: awkward shapes") {
    std::uint64_t seed = 0;
    for (const MatmulCase& c : KernelMatmuls())
      for (const Exact32 kind : kKinds)
        for (const std::size_t format : {0u, 1u}) {
          ++seed;
          CheckCounts(c, KernelFormats()[format], kind, static_cast<int>(c.x.n - seed % 2), seed);
        }
  }

  TEST_CASE("tile counts: every format") {
    const std::vector<MatmulCase> products = KernelMatmuls();
    std::uint64_t seed = 1000;
    for (const FormatSet& f : KernelFormats())
      for (const Exact32 kind : kKinds)
        for (int i = 0; i < 4; ++i, ++seed) {
          const MatmulCase& c = products[seed * 5 % products.size()];
          CheckCounts(c, f, kind, static_cast<int>(c.x.n), seed);
        }
  }

  TEST_CASE("tile counts: random shapes") {
    RandomStream random(6, StreamId("formats and rows"));
    std::uint64_t seed = 2000;
    for (const MatmulCase& c : RandomMatmuls(90, 3e5, 7)) {
      const auto formats = random.Below(static_cast<std::uint32_t>(KernelFormats().size()));
      const int rows = 1 + static_cast<int>(random.Below(static_cast<std::uint32_t>(c.x.n)));
      CheckCounts(c, KernelFormats()[formats], kKinds[random.Below(3)], rows, ++seed);
    }
  }

  TEST_CASE("tile counts: several chunks, some of whose images overflow") {
    const std::array<int, 2> one = {1, 1}, two = {2, 2}, three = {3, 3};
    const std::vector<MatmulCase> large = {
        {"16", {9, 32, 32, 16}, 16, three, one, one, one, 1, false},
        {"16 to 32, stride 2", {21, 16, 17, 16}, 32, three, two, one, one, 1, false},
        LinearCase("linear", {700, 1, 1, 64}, 10, false)};
    for (const MatmulCase& c : large)
      for (const Exact32 kind : kKinds) {
        CheckCounts(c, KernelFormats()[0], kind, static_cast<int>(c.x.n) - 1, 3001);
        CheckCounts(c, KernelFormats()[2], kind, static_cast<int>(c.x.n), 3002);
      }
  }

  TEST_CASE("tile counts: a pass that does not count has numel, max_abs and wanted moments") {
    std::uint64_t seed = 4000;
    for (const MatmulCase& c : KernelMatmuls())
      for (const std::size_t format : {0u, 1u, 3u})
        for (const bool moments : {false, true}) {
          CAPTURE(Text(c));
          CAPTURE(format);
          CAPTURE(moments);
          ++seed;
          const MatmulFormats& formats = KernelFormats()[format].formats;
          const int rows = static_cast<int>(c.x.n);
          const ExactInputs in(c, formats, kKinds[seed % 3], rows, seed);
          Bench bench;
          ExactBench p(bench, c, formats, in, kScale, kAlpha);
          MatmulSpec& s = p.spec;
          if (!moments) s.dx.moments = nullptr;
          p.Step(*p.MakeOp(bench), QuietPass(rows));
          const NaiveMatmul want = ComputeNaively(c, rows, in.x, in.w, in.b, in.dy);
          CheckQuiet("y", s.y, *s.y_stats, ExactValues(want.y));
          CheckQuiet("dx", s.dx.tensor, *s.dx.stats, ExactValues(want.dx, kAlpha));
          const Values stored = Bench::Get(s.dx.tensor);
          if (moments && !AnyNan(stored)) CheckMoments(*s.dx.moments, stored);
        }
  }
}

}  // namespace ada::backend::test
