// Max and average pooling against the CPU's, bit for bit: overlapping and padded windows, ties,
// values that are not finite, tails, counts; and a few sums by hand.
#include <doctest/doctest.h>

#include <array>

#include "backend/pool_cases.h"
#include "cuda/on_both.h"
#include "error.h"

namespace ada::backend::test {
namespace {

std::size_t Size(const Shape& shape) { return static_cast<std::size_t>(shape.numel()); }

template <class Spec>
Spec MakeSpec(Lab& lab, const PoolCase& c, const NumberFormat& format, const Values& x,
              double sigma = 1) {
  Spec spec;
  spec.x = lab.Make(c.x, format, x), spec.y = lab.Make(c.y(), format);
  spec.kernel = c.kernel, spec.stride = c.stride, spec.padding = c.padding;
  if constexpr (requires { spec.count_padding; }) spec.count_padding = c.count_padding;
  spec.dy = lab.MakeGradient(c.y(), format, 32.0f, Normal(Size(c.y()), sigma, 2));
  spec.dx = lab.MakeGradient(c.x, format);
  return spec;
}
Pass PassOf(int rows, bool count) {
  Pass pass;
  pass.rows = rows, pass.loss_terms = rows, pass.count = count;
  return pass;
}

void CheckMaxPool(const PoolCase& c, const NumberFormat& format, const Values& x,
                  double sigma = 1) {
  CAPTURE(c.name);
  CAPTURE(FormatName(format));
  for (const int less : {0, c.x.n > 1 ? 1 : 0})
    OnBoth([&](Lab& lab, Findings& findings) {
      auto spec = MakeSpec<MaxPoolSpec>(lab, c, format, x, sigma);
      if (!c.overlaps()) spec.dx.stats = nullptr;
      const auto op = lab->Make(spec);
      for (const bool count : {true, false}) {
        const Pass pass = PassOf(static_cast<int>(c.x.n) - less, count);
        op->Forward(pass);
        op->Backward(pass);
        findings.Add("y", lab, spec.y);
        findings.Add("dx", lab, spec.dx);
      }
    });
}
void CheckAvgPool(const PoolCase& c, const NumberFormat& format, double sigma) {
  CAPTURE(c.name);
  CAPTURE(FormatName(format));
  for (const int less : {0, c.x.n > 1 ? 1 : 0})
    OnBoth([&](Lab& lab, Findings& findings) {
      auto spec = MakeSpec<AvgPoolSpec>(lab, c, format, Normal(Size(c.x), sigma, 1), sigma);
      spec.y_stats = lab.Share<TensorStats>();
      const auto op = lab->Make(spec);
      for (const bool count : {true, false}) {
        const Pass pass = PassOf(static_cast<int>(c.x.n) - less, count);
        op->Forward(pass);
        op->Backward(pass);
        findings.Add("y", lab, spec.y);
        findings.Add("y stats", lab.Fetched(spec.y_stats));
        findings.Add("dx", lab, spec.dx);
      }
    });
}

// Few different values: nearly every window has a tie.
Values Ties(std::size_t n) {
  Values values = Normal(n, 1, 3);
  for (float& v : values) v = std::round(v);
  return values;
}

}  // namespace

TEST_SUITE(ADA_SUITE) {
  TEST_CASE("max pool: every window shape, whole batches and tails, ties to the first") {
    for (const PoolCase& c : PoolCases())
      for (const Kind& kind : MainKinds()) {
        CheckMaxPool(c, kind.format, Normal(Size(c.x), 1, 1));
        CheckMaxPool(c, kind.format, Ties(Size(c.x)), 1e-6);
      }
  }

  TEST_CASE("max pool: eight channels at a time, windows that are known and others") {
    for (const PoolCase& c : std::vector<PoolCase>{
             {"3x3, stride 2", {5, 9, 9, 16}, {3, 3}, {2, 2}, {1, 1}},
             {"3x3, stride 2, no padding", {3, 8, 11, 24}, {3, 3}, {2, 2}},
             {"3x3, stride 2, a rest", {4, 8, 10, 8}, {3, 3}, {2, 2}, {1, 1}, true},
             {"2x2", {5, 7, 6, 24}, {2, 2}, {2, 2}},
             {"2x2, padded", {3, 5, 5, 8}, {2, 2}, {2, 2}, {1, 1}},
             {"2x2, stride 1, more windows than pixels", {3, 4, 5, 8}, {2, 2}, {1, 1}, {1, 1}},
             {"3x2, stride 1x2", {3, 7, 8, 40}, {3, 2}, {1, 2}, {1, 0}},
             {"gaps", {3, 8, 8, 8}, {2, 2}, {3, 3}}})
      for (const NumberFormat& format : {kFp16, kBf16}) {
        CheckMaxPool(c, format, Normal(Size(c.x), 1, 1));
        CheckMaxPool(c, format, Ties(Size(c.x)), 1e-6);
        Values x = Normal(Size(c.x), 1, 4);
        for (std::size_t i = 0; i < x.size(); i += 7) x[i] = std::numeric_limits<float>::infinity();
        for (std::size_t i = 3; i < x.size(); i += 91) x[i] = std::nanf("");
        CheckMaxPool(c, format, x);
      }
  }

  TEST_CASE("max pool: infinities and NaN") {
    const PoolCase c = PoolCases()[2];
    const float inf = std::numeric_limits<float>::infinity();
    Values x = Normal(Size(c.x), 1, 1);
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = i % 5 == 0 ? -inf : i % 211 == 0 ? std::nanf("") : i % 53 == 0 ? inf : x[i];
    for (const Kind& kind : MainKinds()) {
      CheckMaxPool(c, kind.format, x);
      CheckMaxPool(c, kind.format, Values(x.size(), -inf));
    }
  }

  TEST_CASE("max pool: a window whose positions cannot be kept is refused") {
    Lab lab(MakeBackendUnderTest());
    const PoolCase c = {"256x256", {1, 256, 256, 1}, {256, 256}, {256, 256}};
    const auto spec = MakeSpec<MaxPoolSpec>(lab, c, kFp32, Values(65536));
    CHECK_THROWS_AS(lab->Make(spec), ConfigError);
    CheckMaxPool({"255x256", {1, 255, 256, 1}, {255, 256}, {255, 256}}, kFp32, Normal(65280, 1, 1));
  }

  TEST_CASE("average pool: every window shape; padding counts as zeros") {
    for (const PoolCase& c : PoolCases())
      for (const Kind& kind : MainKinds())
        for (const double sigma : {1.0, 1e-7}) CheckAvgPool(c, kind.format, sigma);
  }

  TEST_CASE("average pool: formats of all families") {
    const PoolCase c = PoolCases()[2];
    for (const Kind& kind : AllKinds())
      if (kind.storage == StorageFor(kind.format)) CheckAvgPool(c, kind.format, 1);
  }

  TEST_CASE("pooling: ops that only evaluate") {
    for (const PoolCase& c : {PoolCases()[2], PoolCases()[7]})
      OnBoth([&](Lab& lab, Findings& findings) {
        auto max = MakeSpec<MaxPoolSpec>(lab, c, kFp16, Ties(Size(c.x)));
        auto average = MakeSpec<AvgPoolSpec>(lab, c, kFp16, Ties(Size(c.x)));
        max.dy = max.dx = average.dy = average.dx = Gradient{};
        Pass pass = PassOf(static_cast<int>(c.x.n), false);
        pass.training = false;
        lab->Make(max)->Forward(pass);
        lab->Make(average)->Forward(pass);
        findings.Add("largest", lab, max.y);
        findings.Add("means", lab, average.y);
      });
  }

  TEST_CASE("pooling: by hand") {
    Lab lab(MakeBackendUnderTest());
    const PoolCase c = {"3x3 of 4x4", {1, 4, 4, 1}, {3, 3}, {1, 1}};
    const Values x = {1, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5, 4, 3, 2, 1};
    auto max = MakeSpec<MaxPoolSpec>(lab, c, kFp16, x);
    lab.Set(max.dy.tensor, {1, 2, 4, 8});
    const auto op = lab->Make(max);
    op->Forward(PassOf(1, true));
    op->Backward(PassOf(1, true));
    CHECK(lab.Get(max.y) == Values{8, 8, 8, 8});
    // The windows' first 8: at row 2 (left) twice, at row 1 (right) twice.
    CHECK(lab.Get(max.dx.tensor) == Values{0, 0, 0, 0, 0, 0, 0, 10, 5, 0, 0, 0, 0, 0, 0, 0});
    CHECK(lab.Fetched(max.dx.scale) == 32);
    CHECK(lab.Fetched(max.dx.stats).zeros_after == 14);

    auto mean = MakeSpec<AvgPoolSpec>(lab, {"2x2", {1, 4, 4, 1}, {2, 2}, {2, 2}}, kFp16, x);
    lab.Set(mean.dy.tensor, {4, 8, 12, 16});
    const auto average = lab->Make(mean);
    average->Forward(PassOf(1, true));
    average->Backward(PassOf(1, true));
    CHECK(lab.Get(mean.y) == Values{3.5f, 5.5f, 5.5f, 3.5f});
    CHECK(lab.Get(mean.dx.tensor) == Values{1, 1, 2, 2, 1, 1, 2, 2, 3, 3, 4, 4, 3, 3, 4, 4});
  }
}

}  // namespace ada::backend::test
