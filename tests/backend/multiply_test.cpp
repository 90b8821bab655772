// Products of two tensors against loops: equal shapes, one value a channel on either side, tails,
// counts, gradients that are not asked for.
#include <doctest/doctest.h>

#include "backend/naive_count.h"
#include "backend/op_bench.h"

namespace ada::backend::test {
namespace {

// Two blocks and a part of a third; more than two strips of pixels an image.
const Shape kFull = {7, 20, 13, 37}, kGate = {7, 1, 1, 37};
constexpr int kRows = 5;

std::size_t Size(const Shape& shape, int rows) {
  return static_cast<std::size_t>(rows * shape.per_image());
}

void CheckMultiply(const Shape& first, const Shape& second, const Kind& kind, int asked) {
  CAPTURE(kind.name);
  CAPTURE(asked);
  Bench bench;
  MultiplySpec spec;
  for (const Shape& shape : {first, second}) {
    const std::uint64_t seed = spec.x.size() + 1;
    spec.x.push_back(bench.Make(shape, kind.format, Normal(Size(shape, 7), 1, seed)));
    spec.dx.push_back(bench.MakeGradient(shape, kind.format));
    if ((asked & (1 << (seed - 1))) == 0) spec.dx.back() = {};
  }
  spec.y = bench.Make(kFull, kind.format), spec.y_stats = bench.Stats();
  spec.dy = bench.MakeGradient(kFull, kind.format, Normal(Size(kFull, 7), 1, 3), 16);
  const auto op = bench->Make(spec);
  op->Forward(MakePass(kRows));
  op->Backward(MakePass(kRows));
  const Values dy = Bench::Get(spec.dy.tensor),
               x[] = {Bench::Get(spec.x[0]), Bench::Get(spec.x[1])};
  const auto at = [&](std::size_t k, std::size_t i) {
    const auto c = static_cast<std::size_t>(kFull.c);
    return spec.x[k].shape == kFull ? i : i / Size(kFull, 1) * c + i % c;
  };
  Sums y(Size(kFull, kRows)), dx[2];
  Values before;
  for (std::size_t k = 0; k < 2; ++k) dx[k].resize(Size(spec.x[k].shape, kRows));
  for (std::size_t i = 0; i < y.size(); ++i) {
    before.push_back(x[0][at(0, i)] * x[1][at(1, i)]);
    y[i].Add(static_cast<double>(before.back()));
    for (std::size_t k = 0; k < 2; ++k)
      dx[k][at(k, i)].Add(static_cast<double>(dy[i]) * static_cast<double>(x[1 - k][at(1 - k, i)]));
  }
  CheckTensor(spec.y, y, 0x1p-24);
  CheckStats(*spec.y_stats, kind.format, before);
  for (std::size_t k = 0; k < 2; ++k) {
    if (!spec.dx[k]) continue;
    CheckTensor(spec.dx[k].tensor, dx[k]);
    CHECK(*spec.dx[k].scale == 16);
    CHECK(spec.dx[k].stats->numel == static_cast<std::int64_t>(dx[k].size()));
    Values stored = Bench::Get(spec.dx[k].tensor);
    stored.resize(dx[k].size());
    CheckMoments(*spec.dx[k].moments, stored);
  }
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("multiply: equal shapes, and one value a channel on either side") {
    for (const Kind& kind : MainKinds())
      for (const int asked : {0, 1, 2, 3}) {
        CheckMultiply(kFull, kFull, kind, asked);
        CheckMultiply(kFull, kGate, kind, asked);
        CheckMultiply(kGate, kFull, kind, asked);
      }
  }

  TEST_CASE(
      "multiply: a gate of zero lets nothing of x through; what is not finite stays visible") {
    Bench bench;
    MultiplySpec spec;
    spec.x = {bench.Vector({1, INFINITY, -2}), bench.Vector({0, 0, 3})};
    spec.y = bench.Vector({9, 9, 9});
    bench->Make(spec)->Forward(MakePass(1));
    const Values y = Bench::Get(spec.y);
    CHECK(y[0] == 0);
    CHECK(std::isnan(y[1]));
    CHECK(y[2] == -6);
  }
}

}  // namespace ada::backend::test
