// Infinities and NaN in what products read, and sums that overflow fp32: they come out where fp32
// arithmetic takes them, also of a unit that multiplies parts of values.
#include <doctest/doctest.h>

#include <algorithm>

#include "backend/matmul_cases.h"
#include "backend/naive_count.h"

namespace ada::backend::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Inf where inf is wanted, NaN where NaN is, else within the error of a sum.
void CheckClass(const char* what, const Tensor& t, const Sums& want) {
  CAPTURE(std::string(what));
  const Values got = Bench::Get(t);
  std::size_t wrong = 0, first = 0;
  for (std::size_t i = want.size(); i-- > 0;) {
    const auto value = static_cast<float>(want[i].value);
    const bool good = std::isfinite(value) ? Rounded(t.format, want[i], 0x1p-21).Holds(got[i])
                                           : ada::test::Same(got[i], RoundTo(t.format, value));
    if (!good) ++wrong, first = i;
  }
  CHECK_MESSAGE(wrong == 0, wrong << " wrong, first [" << first << "] = " << got[first]
                                  << ", wanted " << want[first].value);
}

struct Damage {
  std::string name;
  Values x, w, dy;  // put in at places spread over the tensor
};
void Put(Values& values, const Values& damage, std::size_t rows_values) {
  for (std::size_t i = 0; i < damage.size(); ++i)
    values[(i * 977 + 131) % std::min(values.size(), rows_values)] = damage[i];
}

void CheckDamage(const MatmulCase& c, const NumberFormat& format, const Damage& damage) {
  CAPTURE(Text(c));
  CAPTURE(FormatName(format));
  CAPTURE(damage.name);
  const int rows = static_cast<int>(c.x.n);
  Bench bench;
  MatmulBench p(bench, c, format, 2, 4);
  MatmulSpec& s = p.spec;
  Values x = Bench::Get(s.x), w = Bench::Get(s.w), dy = Bench::Get(s.dy.tensor);
  Put(x, damage.x, x.size()), Put(w, damage.w, w.size()), Put(dy, damage.dy, dy.size());
  Bench::Set(s.x, x), Bench::Set(s.w, w), Bench::Set(s.dy.tensor, dy);
  for (float& v : w) v = RoundTo(format, v);
  p.Step(*p.MakeOp(bench), MakePass(rows));
  NaiveMatmul want = ComputeNaively(c, rows, Bench::Get(s.x), w,
                                    c.bias ? Bench::Get(s.b) : Values{}, Bench::Get(s.dy.tensor));
  for (Exact& sum : want.dx) sum *= 4;
  for (Exact& sum : want.dw) sum *= 0.5;
  for (Exact& sum : want.db) sum *= 0.5;
  const auto check = [&] {
    CheckClass("y", s.y, want.y);
    CheckClass("dx", s.dx.tensor, want.dx);
    CheckClass("dw", s.dw, want.dw);
    if (c.bias) CheckClass("db", s.db, want.db);
  };
  check();
  const auto count = [](const Sums& sums, auto&& is) {
    return std::count_if(sums.begin(), sums.end(), [&](const Exact& e) { return is(e.value); });
  };
  const auto nan = [](double v) { return std::isnan(v); };
  const auto inf = [](double v) { return std::isinf(v); };
  CHECK(s.y_stats->nan == count(want.y, nan));
  CHECK(s.y_stats->inf == count(want.y, inf));
  CHECK(s.dx.stats->nan == count(want.dx, nan));
  CHECK(s.dx.stats->inf == count(want.dx, inf));
  CHECK(s.dw_stats->nan == count(want.dw, nan));
  CHECK(s.dw_stats->inf == count(want.dw, inf));
  s.dx.moments = nullptr;
  p.Step(*p.MakeOp(bench), QuietPass(rows));
  check();
}

std::vector<Damage> Damages() {
  return {{"inf in x", {kInf}, {}, {}},
          {"infs in x", {kInf, -kInf, kInf, kInf, -kInf}, {}, {}},
          {"NaN in x", {kNan}, {}, {}},
          {"inf in w", {}, {kInf, -kInf}, {}},
          {"NaN in w", {}, {kNan}, {}},
          {"inf in dy", {}, {}, {-kInf}},
          {"NaN in dy", {}, {}, {kNan, kNan}},
          {"inf times zero", {kInf, 0, 0}, {0, kInf, 0}, {0, 0, -kInf}},
          {"everywhere", {kInf, kNan}, {-kInf}, {kInf, -kInf, kNan}}};
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("tile infinities: infinities and NaN go where fp32 arithmetic takes them") {
    for (const MatmulCase& c : SomeKernelMatmuls())
      for (const NumberFormat& format : {kFp16, kBf16, kFp8E5M2, kCb16})
        for (const Damage& damage : Damages()) CheckDamage(c, format, damage);
  }

  TEST_CASE("tile infinities: fp8 without infinities has NaN alone") {
    for (const MatmulCase& c : SomeKernelMatmuls())
      for (const Damage& damage : {Damage{"x", {kNan}, {}, {}}, Damage{"w", {}, {kNan, kNan}, {}},
                                   Damage{"dy", {}, {}, {kNan}}})
        CheckDamage(c, kFp8E4M3, damage);
  }

  TEST_CASE("tile infinities: several chunks, one image of which is not finite") {
    const std::array<int, 2> one = {1, 1}, three = {3, 3};
    const MatmulCase wide{"chunks", {11, 32, 32, 16}, 16, three, one, one, one, 1, true};
    const MatmulCase flat = LinearCase("rows", {700, 1, 1, 64}, 10, true);
    for (const MatmulCase& c : {wide, flat})
      for (const std::size_t damage : {0u, 4u, 5u, 8u}) CheckDamage(c, kFp16, Damages()[damage]);
  }

  TEST_CASE("tile infinities: fp32 sums that overflow are infinite, not counted as overflow") {
    const std::array<int, 2> one = {1, 1}, no = {0, 0};
    const MatmulCase c{"1x1", {3, 2, 3, 4}, 5, one, one, no, one, 1, false};
    const auto n = static_cast<std::size_t>(c.x.numel());
    for (const float big : {0x1p100f, 0x1.fep127f}) {
      Bench bench;
      MatmulBench p(bench, c, kBf16, 1, 1);
      Bench::Set(p.spec.x, Values(n, -big));
      Bench::Set(p.spec.w, Values(20, big > 0x1p120f ? 1 : big));
      Bench::Set(p.spec.dy.tensor, Values(static_cast<std::size_t>(c.y().numel()), big));
      p.Step(*p.MakeOp(bench), MakePass(3));
      CheckEqual(p.spec.y, Values(static_cast<std::size_t>(c.y().numel()), -kInf));
      CheckEqual(p.spec.dx.tensor, Values(n, kInf));
      CHECK(p.spec.y_stats->inf == c.y().numel());
      CHECK(p.spec.y_stats->overflow == 0);
      CHECK(p.spec.dx.stats->inf == c.x.numel());
      CHECK(p.spec.dw_stats->inf == 20);
    }
  }
}

}  // namespace ada::backend::test
