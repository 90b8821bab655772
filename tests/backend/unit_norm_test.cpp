// Layer norm and group norm against plain loops in double.
#include <doctest/doctest.h>

#include <cmath>

#include "backend/op_bench.h"

namespace ada::backend::test {
namespace {

constexpr int kRows = 5;
constexpr double kEps = 1e-3;

// Groups of an image's channels, or (0) each pixel: y, dx, dgamma, dbeta.
struct Naive {
  Sums y, dx, dgamma, dbeta;
};
Naive NormOf(const Shape& s, int groups, const Values& x, const Values& dy, const Values& gamma,
             const Values& beta) {
  const auto channels = static_cast<std::size_t>(s.c);
  Naive r;
  r.y.resize(static_cast<std::size_t>(kRows * s.per_image())), r.dx.resize(r.y.size());
  r.dgamma.resize(channels), r.dbeta.resize(channels);
  std::vector<std::vector<std::size_t>> units;
  const std::int64_t pixels = s.h * s.w, width = groups == 0 ? s.c : s.c / groups;
  for (std::int64_t n = 0; n < kRows; ++n)
    for (std::int64_t u = 0; u < (groups == 0 ? pixels : groups); ++u) {
      std::vector<std::size_t>& unit = units.emplace_back();
      for (std::int64_t p = groups == 0 ? u : 0; p < (groups == 0 ? u + 1 : pixels); ++p)
        for (std::int64_t c = 0; c < width; ++c)
          unit.push_back(
              static_cast<std::size_t>((n * pixels + p) * s.c + (groups == 0 ? 0 : u * width) + c));
    }
  for (const auto& unit : units) {
    const auto count = static_cast<double>(unit.size());
    double mean = 0, variance = 0;
    Exact mean_g, mean_ghat;
    for (const std::size_t i : unit) mean += static_cast<double>(x[i]) / count;
    for (const std::size_t i : unit)
      variance += std::pow(static_cast<double>(x[i]) - mean, 2) / count;
    const double inverse = 1 / std::sqrt(variance + kEps);
    const auto hat = [&](std::size_t i) { return (static_cast<double>(x[i]) - mean) * inverse; };
    const auto g = [&](std::size_t i) {
      return static_cast<double>(dy[i]) * static_cast<double>(gamma[i % channels]);
    };
    // What fp32 rounds are x and its mean, of which hat is the difference.
    const auto roundings_of_hat = [&](std::size_t i) {
      return (std::fabs(static_cast<double>(x[i])) + std::fabs(mean)) * inverse;
    };
    for (const std::size_t i : unit) {
      mean_g.Add(g(i) / count), mean_ghat.Add(g(i) * hat(i) / count);
      mean_ghat.magnitude += std::fabs(g(i)) * roundings_of_hat(i) / count;
      const double parts[] = {static_cast<double>(x[i]) * inverse, -mean * inverse};
      for (const double part : parts) {
        r.y[i].Add(part * static_cast<double>(gamma[i % channels]));
        r.dgamma[i % channels].Add(static_cast<double>(dy[i]) * part / 16);
      }
      r.y[i].Add(static_cast<double>(beta[i % channels]));
      r.dbeta[i % channels].Add(static_cast<double>(dy[i]) / 16);
    }
    for (const std::size_t i : unit) {
      // All terms of the two means are terms of dx.
      Exact mean_part = mean_g, hat_part = mean_ghat;
      mean_part *= -inverse, hat_part *= -hat(i) * inverse;
      hat_part.magnitude += std::fabs(mean_ghat.value) * inverse * roundings_of_hat(i);
      r.dx[i].Add(g(i) * inverse);
      for (const Exact& part : {mean_part, hat_part}) {
        r.dx[i].value += part.value;
        r.dx[i].magnitude += part.magnitude;
      }
    }
  }
  return r;
}

template <class Spec>
void CheckNorm(Spec spec, const Shape& shape, int groups, const Kind& kind, double offset) {
  CAPTURE(kind.name);
  CAPTURE(groups);
  CAPTURE(ToString(shape));
  Bench bench;
  const auto n = static_cast<std::size_t>(shape.numel()), c = static_cast<std::size_t>(shape.c);
  Values x = Normal(n, 1, 1);
  for (float& v : x) v += static_cast<float>(offset);
  spec.eps = static_cast<float>(kEps);
  spec.x = bench.Make(shape, kind.format, x), spec.y = bench.Make(shape, kind.format);
  spec.gamma = bench.Vector(Normal(c, 1, 3)), spec.beta = bench.Vector(Normal(c, 1, 4));
  spec.dgamma = bench.Vector(Values(c)), spec.dbeta = bench.Vector(Values(c));
  spec.y_stats = bench.Stats();
  spec.dy = bench.MakeGradient(shape, kind.format, Normal(n, 1, 2), 16);
  spec.dx = bench.MakeGradient(shape, kind.format);
  const Values dy = Bench::Get(spec.dy.tensor);
  const Naive want =
      NormOf(shape, groups, Bench::Get(spec.x), dy, Bench::Get(spec.gamma), Bench::Get(spec.beta));
  const auto op = bench->Make(spec);
  op->Forward(MakePass(kRows));
  op->Backward(MakePass(kRows));
  CheckTensor(spec.y, want.y);
  CheckTensor(spec.dx.tensor, want.dx);
  CheckTensor(spec.dgamma, want.dgamma);
  CheckTensor(spec.dbeta, want.dbeta);
  CHECK(*spec.dx.scale == 16);
  CHECK(spec.y_stats->numel == static_cast<std::int64_t>(want.y.size()));
  CHECK(spec.dx.stats->numel == static_cast<std::int64_t>(want.dx.size()));
  // A later micro-batch adds; dx may lie where dy lies; evaluation normalizes the same way.
  const Values was = Bench::Get(spec.dgamma), y = Bench::Get(spec.y);
  Values dx = Bench::Get(spec.dx.tensor);
  Pass later = MakePass(kRows);
  later.accumulate = true;
  spec.dx.tensor = spec.dy.tensor;
  op->Backward(later);
  const Values twice = Bench::Get(spec.dgamma);
  for (std::size_t i = 0; i < c; ++i) CHECK(twice[i] == was[i] + was[i]);
  const auto in_place = bench->Make(spec);
  in_place->Forward(later);
  in_place->Backward(later);
  std::copy(dy.begin() + static_cast<std::ptrdiff_t>(want.dx.size()), dy.end(),
            dx.begin() + static_cast<std::ptrdiff_t>(want.dx.size()));
  CheckEqual(spec.dx.tensor, dx);
  spec.dy = spec.dx = {}, spec.dgamma = spec.dbeta = {};
  later.training = false;
  bench->Make(spec)->Forward(later);
  CheckEqual(spec.y, y);
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("layer norm: the channels of a pixel, and features without pixels") {
    for (const Kind& kind : MainKinds())
      for (const Shape& shape : {Shape{7, 20, 13, 37}, {7, 3, 3, 96}, {7, 1, 1, 50}, {7, 2, 5, 1}})
        CheckNorm(LayerNormSpec(), shape, 0, kind, shape.c == 96 ? 20 : 0);
  }

  TEST_CASE("group norm: from one group to one a channel") {
    for (const Kind& kind : MainKinds())
      for (const int groups : {1, 2, 18, 36}) {
        GroupNormSpec spec;
        spec.groups = groups;
        CheckNorm(spec, {7, 20, 13, 36}, groups, kind, 0);
        CheckNorm(spec, {7, 2, 3, 36}, groups, kind, 3);
      }
  }
}

}  // namespace ada::backend::test
