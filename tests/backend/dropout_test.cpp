// Dropout: which values stay, by how much they grow, and that backward draws the same mask.
#include <doctest/doctest.h>

#include "backend/naive_count.h"
#include "backend/op_bench.h"
#include "backend/styles.h"

namespace ada::backend::test {
namespace {

const Shape kShape = {9, 16, 16, 35};  // blocks of one image, no multiple of a vector

DropoutSpec MakeSpec(Bench& bench, const NumberFormat& format, float rate, std::uint64_t layer) {
  const auto n = static_cast<std::size_t>(kShape.numel());
  DropoutSpec spec;
  spec.rate = rate, spec.stream = layer;
  spec.x = bench.Make(kShape, format, Normal(n, 1, 1)), spec.y = bench.Make(kShape, format);
  spec.y_stats = bench.Stats();
  spec.dy = bench.MakeGradient(kShape, format, Normal(n, 1, 2), 8);
  spec.dx = bench.MakeGradient(kShape, format);
  return spec;
}
Pass Drawing(int rows, std::uint64_t seed, std::uint64_t draw) {
  Pass pass = MakePass(rows);
  pass.seed = seed, pass.draw = draw;
  return pass;
}
// True where the value was kept (x is nowhere zero).
std::vector<bool> MaskOf(const DropoutSpec& spec, Bench& bench, const Pass& pass) {
  bench->Make(spec)->Forward(pass);
  std::vector<bool> mask;
  for (const float v : Bench::Get(spec.y)) mask.push_back(v != 0);
  return mask;
}
double Share(const std::vector<bool>& mask) {
  return static_cast<double>(std::count(mask.begin(), mask.end(), true)) /
         static_cast<double>(mask.size());
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("dropout: kept values are x / (1 - rate) rounded once; backward has the same mask") {
    for (const Kind& kind : MainKinds())
      for (const float rate : {0.0f, 0.1f, 0.5f, 0.9f}) {
        if (rate != 0.1f && kind.format != kFp16) continue;
        CAPTURE(kind.name);
        CAPTURE(rate);
        Bench bench;
        const DropoutSpec spec = MakeSpec(bench, kind.format, rate, 3);
        const auto op = bench->Make(spec);
        const Pass pass = Drawing(7, 1, 2);
        op->Forward(pass);
        op->Backward(pass);
        const auto n = static_cast<std::size_t>(7 * kShape.per_image());
        Values x = Bench::Get(spec.x), dy = Bench::Get(spec.dy.tensor), y = Bench::Get(spec.y);
        x.resize(n), dy.resize(n);
        for (std::size_t i = 0; i < n; ++i) {
          const float factor = y[i] == 0 ? 0 : 1.0f / (1.0f - rate);
          x[i] = factor == 0 ? 0 : x[i] * factor, dy[i] = factor == 0 ? 0 : dy[i] * factor;
        }
        CheckStats(*spec.y_stats, kind.format, x);
        CheckStats(*spec.dx.stats, kind.format, dy);
        Values dx = RoundAll(kind.format, dy);
        CheckMoments(*spec.dx.moments, dx);
        x = RoundAll(kind.format, x);
        x.resize(y.size()), dx.resize(y.size());
        CheckEqual(spec.y, x);
        CheckEqual(spec.dx.tensor, dx);
        CHECK(*spec.dx.scale == 8);
      }
  }

  // 80,640 draws: the share's standard deviation is below 0.0018.
  TEST_CASE("dropout: the share that stays is 1 - rate, in every channel and image alike") {
    Bench bench;
    for (const float rate : {0.1f, 0.5f, 0.75f}) {
      const DropoutSpec spec = MakeSpec(bench, kFp16, rate, 3);
      const std::vector<bool> mask = MaskOf(spec, bench, Drawing(9, 4, 5));
      const double keep = 1 - static_cast<double>(rate);
      CHECK(std::fabs(Share(mask) - keep) < 0.009);
      std::vector<std::vector<bool>> channels(35);
      for (std::size_t i = 0; i < mask.size(); ++i) channels[i % 35].push_back(mask[i]);
      for (const auto& channel : channels) CHECK(std::fabs(Share(channel) - keep) < 0.055);
    }
  }

  TEST_CASE("dropout: seed, draw and layer give masks of their own; rows do not matter") {
    Bench bench;
    const DropoutSpec spec = MakeSpec(bench, kFp32, 0.5f, 3);
    const std::vector<bool> mask = MaskOf(spec, bench, Drawing(9, 1, 1));
    CHECK(MaskOf(spec, bench, Drawing(9, 1, 1)) == mask);
    const DropoutSpec other = MakeSpec(bench, kFp32, 0.5f, 4);
    for (const auto& different :
         {MaskOf(spec, bench, Drawing(9, 2, 1)), MaskOf(spec, bench, Drawing(9, 1, 2)),
          MaskOf(other, bench, Drawing(9, 1, 1))}) {
      std::vector<bool> equal;
      for (std::size_t i = 0; i < mask.size(); ++i) equal.push_back(mask[i] == different[i]);
      CHECK(std::fabs(Share(equal) - 0.5) < 0.009);
    }
    const DropoutSpec fewer = MakeSpec(bench, kFp32, 0.5f, 3);
    const std::vector<bool> head = MaskOf(fewer, bench, Drawing(4, 1, 1));
    const auto end = mask.begin() + 4 * kShape.per_image();
    CHECK(std::equal(mask.begin(), end, head.begin()));
  }

  TEST_CASE("dropout: evaluation copies") {
    for (const Kind& kind : MainKinds()) {
      Bench bench;
      const DropoutSpec spec = MakeSpec(bench, kind.format, 0.5f, 3);
      Pass pass = Drawing(9, 1, 1);
      pass.training = false;
      bench->Make(spec)->Forward(pass);
      CheckEqual(spec.y, Bench::Get(spec.x));
    }
  }

  TEST_CASE("dropout: evaluation rounds to a scale of its own") {
    Bench bench;
    DropoutSpec spec;
    const Style style(false, 0, 3);
    spec.rate = 0.5f, spec.y_style = style.style;
    const auto n = static_cast<std::size_t>(kShape.numel());
    spec.x = bench.MakeF32(kShape, kFp8E4M3);
    Bench::Set(spec.x, Normal(n, 1, 1));
    spec.y = bench.MakeF32(kShape, kFp8E4M3);
    Pass pass = Drawing(9, 1, 1);
    pass.training = false;
    bench->Make(spec)->Forward(pass);
    CheckRounded("y", spec.y, style, Bench::Get(spec.x), 9);
  }
}

}  // namespace ada::backend::test
