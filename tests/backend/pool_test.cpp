// Max and average pooling against loops: overlapping and padded windows, ties, NaN, tails, counts.
#include <doctest/doctest.h>

#include <array>

#include "backend/naive_count.h"
#include "backend/op_bench.h"
#include "backend/pool_cases.h"
#include "error.h"

namespace ada::backend::test {
namespace {

template <class Spec>
Spec MakeSpec(Bench& bench, const PoolCase& c, const NumberFormat& format, const Values& x) {
  Spec spec;
  spec.x = bench.Make(c.x, format, x), spec.y = bench.Make(c.y(), format);
  spec.kernel = c.kernel, spec.stride = c.stride, spec.padding = c.padding;
  if constexpr (requires { spec.count_padding; }) spec.count_padding = c.count_padding;
  spec.dy = bench.MakeGradient(c.y(), format, Normal(static_cast<std::size_t>(c.y().numel()), 1, 2),
                               32.0f);
  spec.dx = bench.MakeGradient(c.x, format);
  return spec;
}
// tap(yi, xi) for each pixel of each window, rows first.
template <class Tap>
void ForTapsOf(const PoolCase& c, const Shape& y, int rows, Tap&& tap) {
  for (std::int64_t n = 0; n < rows; ++n)
    for (std::int64_t oh = 0; oh < y.h; ++oh)
      for (std::int64_t ow = 0; ow < y.w; ++ow)
        for (std::int64_t k = 0; k < y.c; ++k)
          for (std::int64_t i = 0; i < c.kernel[0]; ++i)
            for (std::int64_t j = 0; j < c.kernel[1]; ++j) {
              const std::int64_t h = oh * c.stride[0] - c.padding[0] + i;
              const std::int64_t w = ow * c.stride[1] - c.padding[1] + j;
              if (h < 0 || h >= c.x.h || w < 0 || w >= c.x.w) continue;
              tap(static_cast<std::size_t>(((n * y.h + oh) * y.w + ow) * y.c + k),
                  static_cast<std::size_t>(((n * c.x.h + h) * c.x.w + w) * y.c + k));
            }
}
template <class Tap>
void ForTaps(const PoolCase& c, int rows, Tap&& tap) {
  ForTapsOf(c, c.y(), rows, tap);
}
std::size_t Size(const Shape& shape, int rows) {
  return static_cast<std::size_t>(rows * shape.per_image());
}

// PyTorch: the first largest pixel of a window gets its gradient; a NaN counts as the largest.
void CheckMaxPool(const PoolCase& c, const NumberFormat& format, int rows, const Values& x) {
  CAPTURE(c.name);
  CAPTURE(FormatName(format));
  CAPTURE(rows);
  Bench bench;
  auto spec = MakeSpec<MaxPoolSpec>(bench, c, format, x);
  if (!c.overlaps()) spec.dx.stats = nullptr;
  const auto op = bench->Make(spec);
  op->Forward(MakePass(rows));
  op->Backward(MakePass(rows));
  const Values in = Bench::Get(spec.x), dy = Bench::Get(spec.dy.tensor);
  Values y(static_cast<std::size_t>(c.y().numel()));
  std::vector<std::int64_t> from(y.size(), -1);
  ForTaps(c, rows, [&](std::size_t yi, std::size_t xi) {
    if (from[yi] >= 0 && !(in[xi] > y[yi]) && !std::isnan(in[xi])) return;
    y[yi] = in[xi], from[yi] = static_cast<std::int64_t>(xi);
  });
  CheckEqual(spec.y, y);
  Sums dx(Size(c.x, rows));
  for (std::size_t i = 0; i < Size(c.y(), rows); ++i)
    dx[static_cast<std::size_t>(from[i])].Add(static_cast<double>(dy[i]));
  CheckTensor(spec.dx.tensor, dx);
  CHECK(*spec.dx.scale == 32);
  if (c.overlaps()) CHECK(spec.dx.stats->numel == static_cast<std::int64_t>(dx.size()));
}

void CheckAvgPool(const PoolCase& c, const NumberFormat& format, int rows) {
  CAPTURE(c.name);
  CAPTURE(FormatName(format));
  CAPTURE(rows);
  Bench bench;
  auto spec =
      MakeSpec<AvgPoolSpec>(bench, c, format, Normal(static_cast<std::size_t>(c.x.numel()), 1, 1));
  spec.y_stats = bench.Stats();
  const auto op = bench->Make(spec);
  op->Forward(MakePass(rows));
  op->Backward(MakePass(rows));
  const Values x = Bench::Get(spec.x), dy = Bench::Get(spec.dy.tensor);
  // One over the positions that count, window by window.
  std::vector<int> counted(Size(c.y(), rows));
  PoolCase wide = c;  // the padding made part of the image
  wide.x.h += 2 * c.padding[0], wide.x.w += 2 * c.padding[1], wide.padding = {0, 0};
  const auto count = [&](std::size_t yi, std::size_t) { ++counted[yi]; };
  if (c.count_padding)
    ForTapsOf(wide, c.y(), rows, count);
  else
    ForTaps(c, rows, count);
  Sums y(Size(c.y(), rows)), dx(Size(c.x, rows));
  ForTaps(c, rows, [&](std::size_t yi, std::size_t xi) {
    y[yi].Add(static_cast<double>(x[xi]) / counted[yi]);
    dx[xi].Add(static_cast<double>(dy[yi]) / counted[yi]);
  });
  CheckTensor(spec.y, y);
  CheckTensor(spec.dx.tensor, dx);
  CHECK(*spec.dx.scale == 32);
  CHECK(spec.y_stats->numel == static_cast<std::int64_t>(y.size()));
  CHECK(spec.dx.stats->numel == static_cast<std::int64_t>(dx.size()));
}

// Few different values: nearly every window has a tie.
Values Ties(std::size_t n) {
  Values values = Normal(n, 1, 3);
  for (float& v : values) v = std::round(v);
  return values;
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("max pool: every window shape, whole batches and tails, ties to the first") {
    for (const PoolCase& c : PoolCases())
      for (const Kind& kind : MainKinds())
        for (const int less : {0, 1}) {
          const auto n = static_cast<std::size_t>(c.x.numel());
          const int rows = static_cast<int>(c.x.n) - less;
          CheckMaxPool(c, kind.format, rows, Normal(n, 1, 1));
          CheckMaxPool(c, kind.format, rows, Ties(n));
        }
  }

  TEST_CASE("max pool: infinities and NaN") {
    const PoolCase c = PoolCases()[2];
    Values x = Normal(static_cast<std::size_t>(c.x.numel()), 1, 1);
    const float inf = std::numeric_limits<float>::infinity();
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = i % 5 == 0 ? -inf : i % 211 == 0 ? std::nanf("") : i % 53 == 0 ? inf : x[i];
    for (const Kind& kind : MainKinds()) {
      CheckMaxPool(c, kind.format, 5, x);
      CheckMaxPool(c, kind.format, 5, Values(x.size(), -inf));
    }
  }

  TEST_CASE("adaptive average pool: windows between floor and ceiling, overlapping and repeated") {
    for (const Shape& x : {Shape{3, 7, 5, 17}, {4, 3, 8, 3}, {2, 1, 1, 5}})
      for (const auto& [h, w] : {std::pair{3, 2}, {7, 7}, {1, 3}})
        for (const Kind& kind : MainKinds()) {
          CAPTURE(ToString(x));
          CAPTURE(h);
          Bench bench;
          AvgPoolSpec spec;
          const Shape y = {x.n, h, w, x.c};
          const int rows = static_cast<int>(x.n) - 1;
          spec.adaptive = true;
          spec.x = bench.Make(x, kind.format, Normal(Size(x, static_cast<int>(x.n)), 1, 1));
          spec.y = bench.Make(y, kind.format), spec.y_stats = bench.Stats();
          spec.dy = bench.MakeGradient(y, kind.format, Normal(Size(y, static_cast<int>(x.n)), 1, 2),
                                       32.0f);
          spec.dx = bench.MakeGradient(x, kind.format);
          const auto op = bench->Make(spec);
          op->Forward(MakePass(rows));
          op->Backward(MakePass(rows));
          const Values in = Bench::Get(spec.x), dy = Bench::Get(spec.dy.tensor);
          Sums want(Size(y, rows)), dx(Size(x, rows));
          // torch.nn.AdaptiveAvgPool2d: from floor(i in / out) to ceil((i + 1) in / out).
          const auto inside = [](std::int64_t at, std::int64_t i, std::int64_t size,
                                 std::int64_t out) {
            return at >= i * size / out && at * out < (i + 1) * size;
          };
          for (std::size_t i = 0; i < want.size(); ++i) {
            const auto at = static_cast<std::int64_t>(i);
            const std::int64_t c = at % y.c, ow = at / y.c % y.w, oh = at / y.c / y.w % y.h,
                               n = at / y.per_image();
            std::vector<std::size_t> taps;
            for (std::int64_t r = 0; r < x.h; ++r)
              for (std::int64_t k = 0; k < x.w; ++k)
                if (inside(r, oh, x.h, y.h) && inside(k, ow, x.w, y.w))
                  taps.push_back(static_cast<std::size_t>(((n * x.h + r) * x.w + k) * x.c + c));
            for (const std::size_t tap : taps) {
              want[i].Add(static_cast<double>(in[tap]) / static_cast<double>(taps.size()));
              dx[tap].Add(static_cast<double>(dy[i]) / static_cast<double>(taps.size()));
            }
          }
          CheckTensor(spec.y, want);
          CheckTensor(spec.dx.tensor, dx);
          CHECK(*spec.dx.scale == 32);
          CHECK(spec.y_stats->numel == static_cast<std::int64_t>(want.size()));
        }
  }

  TEST_CASE("pooling: ops that only evaluate") {
    const PoolCase c = PoolCases()[2];
    const Values x = Ties(static_cast<std::size_t>(c.x.numel()));
    Bench bench;
    auto max = MakeSpec<MaxPoolSpec>(bench, c, kFp16, x);
    auto average = MakeSpec<AvgPoolSpec>(bench, c, kFp16, x);
    bench->Make(max)->Forward(MakePass(5));
    bench->Make(average)->Forward(MakePass(5));
    const Values largest = Bench::Get(max.y), means = Bench::Get(average.y);
    Pass pass = MakePass(5);
    pass.training = false;
    max.y = average.y = bench.Make(c.y(), kFp16);
    max.dy = max.dx = average.dy = average.dx = Gradient{};
    bench->Make(max)->Forward(pass);
    CheckEqual(max.y, largest);
    bench->Make(average)->Forward(pass);
    CheckEqual(average.y, means);
  }

  TEST_CASE("max pool: a window whose positions cannot be kept is refused") {
    Bench bench;
    const PoolCase c = {"256x256", {1, 256, 256, 1}, {256, 256}, {256, 256}};
    const auto spec = MakeSpec<MaxPoolSpec>(bench, c, kFp32, Values(65536));
    CHECK_THROWS_AS(bench->Make(spec), ConfigError);
    CheckMaxPool({"255x256", {1, 255, 256, 1}, {255, 256}, {255, 256}}, kFp32, 1,
                 Normal(65280, 1, 1));
  }

  TEST_CASE("average pool: every window shape; padding counts as zeros") {
    for (const PoolCase& c : PoolCases())
      for (const Kind& kind : MainKinds()) {
        CheckAvgPool(c, kind.format, static_cast<int>(c.x.n));
        CheckAvgPool(c, kind.format, static_cast<int>(c.x.n) - 1);
      }
  }

  // Multiples k * 2^-24 with |k| <= 2000: sums of four are exact in fp32 in any order.
  TEST_CASE("pooling: counts of exact means and of overlapping gradients") {
    Values x = Normal(3 * 6 * 8 * 5, 600, 4);
    for (float& v : x) v = std::round(v / 8) * 0x1p-24f;
    const PoolCase mean = {"mean", {3, 6, 8, 5}, {2, 2}, {2, 2}};
    Bench bench;
    auto average = MakeSpec<AvgPoolSpec>(bench, mean, kFp16, x);
    average.y_stats = bench.Stats();
    bench->Make(average)->Forward(MakePass(2));
    Values means(Size(mean.y(), 2));
    const Values in = Bench::Get(average.x);
    ForTaps(mean, 2, [&](std::size_t yi, std::size_t xi) { means[yi] += in[xi] / 4; });
    CheckStats(*average.y_stats, kFp16, means);

    const PoolCase windows = {"windows", {3, 6, 8, 5}, {3, 3}, {1, 1}};
    auto max = MakeSpec<MaxPoolSpec>(bench, windows, kFp16, Values(x.size(), 1.0f));
    const auto size = static_cast<std::size_t>(windows.y().numel());
    Bench::Set(max.dy.tensor, Values(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(size)));
    const auto op = bench->Make(max);
    op->Forward(MakePass(3));
    op->Backward(MakePass(3));
    Values dx(x.size());
    std::vector<bool> taken(size);
    const Values dy = Bench::Get(max.dy.tensor);
    ForTaps(windows, 3, [&](std::size_t yi, std::size_t xi) {  // all equal: the first one wins
      if (!taken[yi]) dx[xi] += dy[yi];
      taken[yi] = true;
    });
    CheckStats(*max.dx.stats, kFp16, dx);
    CheckMoments(*max.dx.moments, RoundAll(kFp16, dx));
  }
}

}  // namespace ada::backend::test
