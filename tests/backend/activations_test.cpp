// Functions of each value alone (activations.h) against a library's long double: values, slopes,
// roundings, counts, dx where dy lies.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/naive_count.h"
#include "backend/op_bench.h"

namespace ada::backend::test {
namespace {

// Two blocks and a part of a third, and a tail of 5 rows that ends within a block.
const Shape kShape = {7, 20, 13, 37};
constexpr int kRows = 5;

Values Head(Values values, int rows, const Shape& shape) {
  values.resize(static_cast<std::size_t>(rows * shape.per_image()));
  return values;
}
Values Random(const Shape& shape, std::uint64_t seed, double sigma = 1) {
  return Normal(static_cast<std::size_t>(shape.numel()), sigma, seed);
}
// `want` in the first rows, zeros (as allocated) after.
void CheckRows(const Tensor& t, Values want) {
  want.resize(static_cast<std::size_t>(t.shape.numel()));
  CheckEqual(t, want);
}

// Functions and their slopes by a library's long double.
struct Expected {
  float value, slope;
};
using Wide = long double;
Expected Both(Wide value, Wide slope) {
  return {static_cast<float>(value), static_cast<float>(slope)};
}
Expected SigmoidAt(float x) {
  const long double e = std::exp(-static_cast<long double>(std::fabs(x)));
  const long double s = x < 0 ? e / (1 + e) : 1 / (1 + e);
  return {static_cast<float>(s), static_cast<float>(e / ((1 + e) * (1 + e)))};
}
Expected SiluAt(float x) {
  const long double e = std::exp(-static_cast<long double>(std::fabs(x)));
  const long double s = x < 0 ? e / (1 + e) : 1 / (1 + e);
  return {static_cast<float>(x * s), static_cast<float>(s + x * e / ((1 + e) * (1 + e)))};
}

Expected TanhAt(float x) {
  const Wide e = std::exp(-2 * static_cast<Wide>(std::fabs(x)));
  return Both(std::tanh(static_cast<Wide>(x)), 4 * e / ((1 + e) * (1 + e)));
}
Expected Relu6At(float x) { return {x <= 0 ? 0 : std::min(x, 6.0f), x > 0 && x < 6 ? 1.0f : 0}; }
Expected HardtanhAt(float x) {
  return {std::min(std::max(x, -0.3f), 0.7f), x > -0.3f && x < 0.7f ? 1.0f : 0};
}
Expected LeakyReluAt(float x) { return {x > 0 ? x : 0.2f * x, x > 0 ? 1 : 0.2f}; }
Expected HardsigmoidAt(float x) {
  return Both(std::min(std::max(static_cast<Wide>(x) + 3, Wide{0}), Wide{6}) / 6, 0);
}
Expected HardswishAt(float x) {
  const Wide wide = x;
  return Both(wide * std::min(std::max(wide + 3, Wide{0}), Wide{6}) / 6, x <= -3 ? 0
                                                                         : x >= 3
                                                                             ? 1
                                                                             : wide / 3 + 0.5L);
}
Expected GeluAt(float x) {
  const Wide wide = x, share = std::erfc(-wide / std::sqrt(Wide{2})) / 2;
  return Both(wide * share,
              share + wide * std::exp(-wide * wide / 2) / std::sqrt(2 * std::acos(Wide{-1})));
}
Expected GeluTanhAt(float x) {
  const Wide wide = x, factor = std::sqrt(8 / std::acos(Wide{-1}));
  const Wide inner = factor * (wide + 0.044715L * wide * wide * wide);
  const Wide e = std::exp(-std::fabs(inner)), s = inner < 0 ? e / (1 + e) : 1 / (1 + e);
  const Wide slope = wide * factor * (1 + 3 * 0.044715L * wide * wide);
  return Both(wide * s, s + (e == 0 ? 0 : slope * e / ((1 + e) * (1 + e))));
}

Expected SoftplusAt(float x) {
  const Wide wide = 2 * static_cast<Wide>(x), e = std::exp(-std::fabs(wide));
  if (wide > 10) return {x, 1};
  return Both((std::max(wide, Wide{0}) + std::log1p(e)) / 2, wide < 0 ? e / (1 + e) : 1 / (1 + e));
}
Expected EluAt(float x) {
  const Wide wide = x;
  return x > 0 ? Expected{x, 1} : Both(0.75L * std::expm1(wide), 0.75L * std::exp(wide));
}

template <class Function>
void CheckActivation(const Kind& kind, Expected (*expected)(float), const Function& function = {}) {
  CAPTURE(kind.name);
  CAPTURE(Function::kKind);
  Bench bench;
  ActivationSpec<Function> spec;
  spec.function = function;
  Values x = Random(kShape, 1, 4);
  const Values special = {0.0f, -0.0f,    20.0f, -20.0f, 88.0f, -88.0f, -103.0f,
                          3e4f, 0x1p-24f, 3.0f,  -3.0f,  6.0f,  -0.5f,  0.7f};
  std::copy(special.begin(), special.end(), x.begin());
  // Farther out fp32 holds a zero alone, whose sign says nothing.
  if (Function::kKind == std::string("gelu")) x[5] = x[6] = -6;
  spec.x = bench.Make(kShape, kind.format, x), spec.y = bench.Make(kShape, kind.format);
  spec.y_stats = bench.Stats();
  spec.dy = bench.MakeGradient(kShape, kind.format, Random(kShape, 2), 4);
  spec.dx = bench.MakeGradient(kShape, kind.format);
  if (kPassesDy<Function>) spec.dx.stats = nullptr;
  const Values stored = Bench::Get(spec.x), dy = Bench::Get(spec.dy.tensor);
  Values y, dx;
  for (std::size_t i = 0; i < stored.size(); ++i) {
    const Expected want = expected(stored[i]);
    y.push_back(want.value);
    dx.push_back(kPassesDy<Function> ? (want.slope > 0 ? dy[i] : 0) : dy[i] * want.slope);
    if (std::is_same_v<Function, Hardswish> && stored[i] <= -3) dx.back() = 0;  // not -0
    if (std::is_same_v<Function, Hardsigmoid>)  // a sixth of dy, in one rounding
      dx.back() = std::fabs(stored[i]) < 3 ? static_cast<float>(Wide{dy[i]} / 6) : 0;
  }
  y = Head(y, kRows, kShape), dx = Head(dx, kRows, kShape);
  const auto op = bench->Make(spec);
  op->Forward(MakePass(kRows));
  op->Backward(MakePass(kRows));
  CheckRows(spec.y, RoundAll(kind.format, y));
  CheckStats(*spec.y_stats, kind.format, y);
  CheckRows(spec.dx.tensor, RoundAll(kind.format, dx));
  if (!kPassesDy<Function>) CheckStats(*spec.dx.stats, kind.format, dx);
  CheckMoments(*spec.dx.moments, RoundAll(kind.format, dx));
  CHECK(*spec.dx.scale == 4);
  // dx may lie where dy lies.
  spec.dx.tensor = spec.dy.tensor;
  const Values behind(dy.begin() + static_cast<std::ptrdiff_t>(dx.size()), dy.end());
  Values in_place = RoundAll(kind.format, dx);
  in_place.insert(in_place.end(), behind.begin(), behind.end());
  bench->Make(spec)->Backward(MakePass(kRows));
  CheckEqual(spec.dx.tensor, in_place);
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("smooth functions: values and slopes are computed in double, rounded once") {
    for (const Kind& kind : MainKinds()) {
      CheckActivation<Sigmoid>(kind, SigmoidAt);
      CheckActivation<Silu>(kind, SiluAt);
      CheckActivation<Tanh>(kind, TanhAt);
      CheckActivation<Gelu>(kind, GeluAt);
      CheckActivation<GeluTanh>(kind, GeluTanhAt);
      CheckActivation<Softplus>(kind, SoftplusAt, {2, 10});
      CheckActivation<Elu>(kind, EluAt, {0.75f});
    }
  }

  TEST_CASE("functions of pieces: PyTorch's value and slope, at the corners too") {
    for (const Kind& kind : MainKinds()) {
      CheckActivation<Relu6>(kind, Relu6At);
      CheckActivation<Hardtanh>(kind, HardtanhAt, {-0.3f, 0.7f});
      CheckActivation<LeakyRelu>(kind, LeakyReluAt, {0.2f});
      CheckActivation<Hardsigmoid>(kind, HardsigmoidAt);
      CheckActivation<Hardswish>(kind, HardswishAt);
    }
  }

  TEST_CASE("relu6: a bound that the format does not hold is rounded, and counted") {
    Bench bench;
    ActivationSpec<Relu6> spec;
    const NumberFormat powers{4, 0, 7, false};  // powers of two, so that 6 is not there
    for (const NumberFormat& format : {kFp8E5M2, powers}) {
      spec.x = bench.MakeF32({1, 1, 1, 3}, kFp32), spec.y = bench.MakeF32({1, 1, 1, 3}, format);
      Bench::Set(spec.x, {7, -1, 2}), spec.y_stats = bench.Stats();
      bench->Make(spec)->Forward(MakePass(1));
      CHECK(Bench::Get(spec.y) == Values{RoundTo(format, 6.0f), 0, 2});
      CHECK(spec.y_stats->numel == 3);
    }
    CHECK(RoundTo(kFp8E5M2, 6.0f) == 6);
    CHECK(RoundTo(powers, 6.0f) != 6);
  }

  TEST_CASE("functions of a NaN, and of infinity, as PyTorch has them") {
    const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
    Bench bench;
    const auto values_of = [&](auto function) {
      ActivationSpec<decltype(function)> spec;
      spec.x = bench.Vector({inf, -inf, nan}), spec.y = bench.Vector({0, 0, 0});
      bench->Make(spec)->Forward(MakePass(1));
      return Bench::Get(spec.y);
    };
    const auto same = [](const Values& got, const Values& want) {
      CHECK(FirstDifference(got, want) == -1);
    };
    same(values_of(Relu6()), {6, 0, nan});
    same(values_of(Hardtanh()), {1, -1, nan});
    same(values_of(LeakyRelu()), {inf, -inf, nan});
    same(values_of(Tanh()), {1, -1, nan});
    same(values_of(Hardsigmoid()), {1, 0, nan});
    same(values_of(Hardswish()), {inf, nan, nan});
    same(values_of(Gelu()), {inf, nan, nan});
    same(values_of(Softplus()), {inf, 0, nan});
    same(values_of(Elu()), {inf, -1, nan});
  }

  TEST_CASE("sigmoid and silu of what is not finite") {
    const float inf = std::numeric_limits<float>::infinity();
    Bench bench;
    const auto values_of = [&](auto spec) {
      spec.x = bench.Vector({inf, -inf, std::nanf("")}), spec.y = bench.Vector({0, 0, 0});
      spec.dx = bench.MakeGradient(spec.x.shape, kFp32);
      spec.dy = bench.MakeGradient(spec.x.shape, kFp32, {1, 1, 1}, 1);
      const auto op = bench->Make(spec);
      op->Forward(MakePass(1));
      op->Backward(MakePass(1));
      Values all = Bench::Get(spec.y);
      for (const float dx : Bench::Get(spec.dx.tensor)) all.push_back(dx);
      return all;
    };
    const Values s = values_of(SigmoidSpec()), u = values_of(SiluSpec());
    CHECK(Values(s.begin() + 3, s.begin() + 5) == Values{0, 0});
    CHECK(Values(u.begin() + 3, u.begin() + 5) == Values{1, 0});
    CHECK(std::isnan(s[5]));
    CHECK(std::isnan(u[5]));
    CHECK(s[0] == 1);
    CHECK(s[1] == 0);
    CHECK(u[0] == inf);
    CHECK_FALSE(std::isfinite(u[1]));
    CHECK(std::isnan(s[2]));
    CHECK(std::isnan(u[2]));
  }
}

}  // namespace ada::backend::test
