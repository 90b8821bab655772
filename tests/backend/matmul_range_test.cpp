// Products at the ends of the number range: values and sums below fp32's smallest normal number
// (which a matrix unit treats as zero), fp16's subnormals, and sums around the largest values. What
// comes out is what fp32 arithmetic gives.
#include <doctest/doctest.h>

#include <algorithm>

#include "backend/matmul_exact.h"
#include "backend/naive_count.h"

namespace ada::backend::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
// Integers of up to `bits` bits times 2^exponent: what they are multiplied with decides how low
// sums get.
Values Scaled(std::int64_t n, int bits, int exponent, std::uint64_t seed) {
  RandomStream random(seed, StreamId("scaled"));
  Values values(static_cast<std::size_t>(n));
  for (float& v : values) {
    const auto k = static_cast<int>(random.Below(2u << bits)) - (1 << bits);
    v = std::ldexp(static_cast<float>(k), exponent) + 0.0f;
  }
  return values;
}

// Every value exact: y, dx and dw (S and alpha are 1) are the naive sums, rounded once.
void CheckExactly(const MatmulCase& c, const MatmulFormats& f, const Values& x, const Values& w,
                  const Values& dy) {
  const int rows = static_cast<int>(c.x.n);
  Bench bench;
  MatmulBench p(bench, c, f, 1, 1);
  MatmulSpec& s = p.spec;
  Bench::Set(s.x, x), Bench::Set(s.w, w), Bench::Set(s.dy.tensor, dy);
  if (c.bias) Bench::Set(s.b, Values(static_cast<std::size_t>(c.out)));
  p.Step(*p.MakeOp(bench), MakePass(rows));
  const NaiveMatmul want =
      ComputeNaively(c, rows, x, w, Values(static_cast<std::size_t>(c.out)), dy);
  const auto check = [](const char* what, const Tensor& t, const TensorStats* stats,
                        const Sums& sums) {
    CAPTURE(std::string(what));
    const Values before = ExactValues(sums), after = RoundAll(t.format, before),
                 got = Bench::Get(t);
    const std::int64_t at = FirstWrong(got, after, before);
    const auto i = static_cast<std::size_t>(std::max<std::int64_t>(at, 0));
    CHECK_MESSAGE(at == -1, "[" << i << "] = " << got[i] << ", wanted " << after[i] << ", before "
                                << before[i]);
    if (stats->full) CheckStats(*stats, t.format, before);
  };
  for (const bool quiet : {false, true}) {
    CAPTURE(quiet);
    if (quiet) s.dx.moments = nullptr, p.Step(*p.MakeOp(bench), QuietPass(rows));
    check("y", s.y, s.y_stats, want.y);
    check("dx", s.dx.tensor, s.dx.stats, want.dx);
    check("dw", s.dw, s.dw_stats, want.dw);
  }
}

}  // namespace

TEST_SUITE("cpu") {
  // Bf16 values down to its smallest subnormal, 2^-133, times values around one; and normal ones
  // whose products are not: 2^-70 * 2^-70.
  TEST_CASE("tile range: what lies below 2^-126 is not flushed") {
    struct Case {
      const char* name;
      int x, w, dy;  // exponents of the unit
    };
    const Case cases[] = {{"subnormal x", -133, -2, -4},    {"x around 2^-126", -128, 0, 0},
                          {"tiny x", -120, -5, 0},          {"subnormal dy", -3, -2, -133},
                          {"dy around 2^-126", 0, 0, -127}, {"tiny dy", 4, -9, -124},
                          {"subnormal w", 0, -133, 1},      {"w around 2^-126", -4, -128, -2},
                          {"tiny x and w", -70, -72, 30},   {"tiny w and dy", 40, -74, -66},
                          {"tiny x and dy", -71, 20, -73},  {"x and dy a little", -60, -60, -60}};
    const NumberFormat tf32{8, 10, 127};
    for (const MatmulCase& c : SomeKernelMatmuls())
      for (const Case& e : cases)
        for (const NumberFormat& format : {kBf16, tf32, kFp32}) {
          CAPTURE(Text(c));
          CAPTURE(std::string(e.name));
          CAPTURE(FormatName(format));
          const int bits = 3;
          CheckExactly(c, AllOf(format), Scaled(c.x.numel(), bits, e.x, 1),
                       Scaled(c.w().numel(), bits, e.w, 2), Scaled(c.y().numel(), bits, e.dy, 3));
        }
  }

  // Neighboring bf16 values at 2^-120 differ by 2^-127: no product is small, their sum is.
  TEST_CASE("tile range: a sum that cancels to less than 2^-126 is not flushed") {
    const std::array<int, 2> one = {1, 1}, no = {0, 0};
    const MatmulCase c{"1x1 of pairs", {4, 3, 5, 2}, 2, one, one, no, one, 1, false};
    const auto pairs = [](std::int64_t n, float first, float second) {
      Values values(static_cast<std::size_t>(n));
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = i % 2 ? second : first;
      return values;
    };
    const float a = 0x1p-120f, b = -0x1.02p-120f;
    for (const NumberFormat& format : {kBf16, kFp32}) {
      CAPTURE(FormatName(format));
      const Values ones(static_cast<std::size_t>(c.w().numel()), 1.0f);
      const Values none(static_cast<std::size_t>(c.x.numel()));  // as many as y's
      CheckExactly(c, AllOf(format), pairs(c.x.numel(), a, b), ones, none);
      CheckExactly(c, AllOf(format), none, ones, pairs(c.y().numel(), b, a));
    }
  }

  TEST_CASE("tile range: the batch may hold one tiny value in one image") {
    const MatmulCase c = SomeKernelMatmuls()[0];
    for (const float tiny : {0x1p-133f, 0x1p-127f, -0x1p-126f}) {
      CAPTURE(tiny);
      Values x(static_cast<std::size_t>(c.x.numel())), dy(static_cast<std::size_t>(c.y().numel()));
      x[x.size() - 20] = tiny, dy[dy.size() / 2] = tiny;
      CheckExactly(c, AllOf(kBf16), x, Scaled(c.w().numel(), 4, -2, 4),
                   Values(static_cast<std::size_t>(c.y().numel())));
      CheckExactly(c, AllOf(kBf16), Values(x.size(), 0), Scaled(c.w().numel(), 4, -2, 5), dy);
    }
  }

  TEST_CASE("tile range: fp16's subnormals count as they are") {
    for (const MatmulCase& c : SomeKernelMatmuls())
      for (const std::array<int, 3> e : {std::array<int, 3>{-24, 0, -24},
                                         {-24, -10, 0},
                                         {0, -24, -24},
                                         {-24, -24, -24},
                                         {-20, -24, 3}}) {
        CAPTURE(Text(c));
        CAPTURE(e[0]);
        CAPTURE(e[1]);
        CAPTURE(e[2]);
        CheckExactly(c, {kFp16, kFp16, kFp32, kFp16, kFp32}, Scaled(c.x.numel(), 4, e[0], 6),
                     Scaled(c.w().numel(), 3, e[1], 7), Scaled(c.y().numel(), 4, e[2], 8));
      }
  }

  // 65504 + 16 is the tie that overflows; one less in the last bit of fp32 is not.
  TEST_CASE("tile range: sums around fp16's largest value") {
    struct Case {
      float w0, w1;  // y = 65504 w0 + 16 w1, dx likewise
      float y;
    };
    const std::array<int, 2> one = {1, 1}, no = {0, 0};
    const Case cases[] = {{1, 0, 65504},   {1, 1, kInf},       {1, 0x1.ffcp-1f, 65504},
                          {-1, -1, -kInf}, {-1, 0.5f, -65504}, {0.5f, 2, 32768},
                          {2, 0, kInf},    {1, -1, 65472},     {-0.5f, -3, -32800}};
    for (const std::int64_t channels : {2, 17, 33})
      for (const Case& e : cases) {
        CAPTURE(channels);
        CAPTURE(e.w0);
        CAPTURE(e.w1);
        const MatmulCase c{"1x1", {2, 2, 3, channels}, channels, one, one, no, one, 1, false};
        Values x(static_cast<std::size_t>(c.x.numel())),
            w(static_cast<std::size_t>(channels * channels));
        const auto k = static_cast<std::size_t>(channels);
        for (std::size_t i = 0; i < x.size(); i += k) x[i] = 65504, x[i + 1] = 16;
        w[0] = e.w0, w[1] = e.w1;
        CheckExactly(c, AllOf(kFp16), x, w, Values(x.size(), 0));
        Bench bench;
        MatmulBench p(bench, c, kFp16, 1, 1);
        Bench::Set(p.spec.x, x), Bench::Set(p.spec.w, w);
        p.Step(*p.MakeOp(bench), MakePass(2));
        CHECK(Bench::Get(p.spec.y)[0] == e.y);
        CHECK(p.spec.y_stats->overflow == (std::isinf(e.y) ? 12 : 0));
        // The transposed weights and dy in x's place: the same sums.
        Values transposed(w.size());
        for (std::size_t i = 0; i < k; ++i)
          for (std::size_t j = 0; j < k; ++j) transposed[j * k + i] = w[i * k + j];
        Bench::Set(p.spec.w, transposed), Bench::Set(p.spec.dy.tensor, x);
        p.Step(*p.MakeOp(bench), MakePass(2));
        CHECK(Bench::Get(p.spec.dx.tensor)[0] == e.y);
        CHECK(p.spec.dx.stats->overflow == (std::isinf(e.y) ? 12 : 0));
      }
  }
}

}  // namespace ada::backend::test
