// Ops that work value by value or only move values: input, relu, add, shortcut, flatten, concat.
#include <doctest/doctest.h>

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
Values Random(const Shape& shape, std::uint64_t seed) {
  return Normal(static_cast<std::size_t>(shape.numel()), 1, seed);
}
// `want` in the first rows, zeros (as allocated) after.
void CheckRows(const Tensor& t, Values want) {
  want.resize(static_cast<std::size_t>(t.shape.numel()));
  CheckEqual(t, want);
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("concat: channels side by side, rounded once; each input gets its part of dy") {
    const Shape parts[] = {{7, 9, 8, 5}, {7, 9, 8, 16}, {7, 9, 8, 3}}, all = {7, 9, 8, 24};
    for (const Kind& kind : MainKinds())
      for (const bool all_dx : {true, false}) {
        CAPTURE(kind.name);
        Bench bench;
        ConcatSpec spec;
        spec.y = bench.Make(all, kind.format), spec.y_stats = bench.Stats();
        spec.dy = bench.MakeGradient(all, kind.format, Random(all, 9), 2);
        const Values dy = Bench::Get(spec.dy.tensor);
        Values y(static_cast<std::size_t>(all.numel()));
        std::vector<Values> dx;
        std::size_t first = 0;
        for (std::size_t k = 0; k < 3; ++k) {
          const auto c = static_cast<std::size_t>(parts[k].c);
          spec.x.push_back(
              bench.Make(parts[k], MainKinds()[k].format,
                         Spread(kFp16, static_cast<std::size_t>(parts[k].numel()), k)));
          spec.dx.emplace_back();
          if (all_dx || k == 1) spec.dx[k] = bench.MakeGradient(parts[k], kind.format);
          spec.dx[k].stats = nullptr;
          const Values x = Bench::Get(spec.x[k]);
          Values& part = dx.emplace_back(x.size());
          for (std::size_t i = 0; i < x.size(); ++i) {
            const std::size_t at = i / c * 24 + first + i % c;
            y[at] = x[i], part[i] = dy[at];
          }
          first += c;
        }
        const auto op = bench->Make(spec);
        op->Forward(MakePass(kRows));
        op->Backward(MakePass(kRows));
        y = Head(y, kRows, all);
        CheckRows(spec.y, RoundAll(kind.format, y));
        CheckStats(*spec.y_stats, kind.format, y);
        for (std::size_t k = 0; k < 3; ++k) {
          if (!spec.dx[k]) continue;
          const Values want = Head(dx[k], kRows, parts[k]);
          CheckRows(spec.dx[k].tensor, want);
          CheckMoments(*spec.dx[k].moments, want);
          CHECK(*spec.dx[k].scale == 2);
        }
      }
  }

  TEST_CASE("input: images are rounded once, at the input") {
    for (const Kind& kind : MainKinds()) {
      CAPTURE(kind.name);
      Bench bench;
      InputSpec spec;
      spec.y = bench.Make(kShape, kind.format);
      const auto op = bench->MakeInput(spec);
      const Values images =
          Head(Spread(kFp16, static_cast<std::size_t>(kShape.numel()), 1), kRows, kShape);
      op->SetImages(images.data(), kRows);
      op->Forward(MakePass(kRows));
      CheckRows(spec.y, RoundAll(kind.format, images));
    }
  }

  TEST_CASE("relu: zeros and negatives give +0, a NaN stays; the mask is y > 0") {
    const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
    for (const Kind& kind : MainKinds()) {
      CAPTURE(kind.name);
      Bench bench;
      ReluSpec spec;
      Values x = Random(kShape, 1), dy = Random(kShape, 2);
      const Values special = {0.0f, -0.0f, inf, -inf, nan, 0x1p-24f, -0x1p-24f};
      std::copy(special.begin(), special.end(), x.begin());
      dy[20] = inf, dy[21] = nan, x[20] = 1, x[21] = -1;
      spec.x = bench.Make(kShape, kind.format, x), spec.y = bench.Make(kShape, kind.format);
      spec.dy = bench.MakeGradient(kShape, kind.format, dy, 4);
      spec.dx = bench.MakeGradient(kShape, kind.format);
      spec.dx.stats = nullptr;
      const auto op = bench->Make(spec);
      op->Forward(MakePass(kRows));
      op->Backward(MakePass(kRows));
      Values y = Head(Bench::Get(spec.x), kRows, kShape), dx = Bench::Get(spec.dy.tensor);
      for (float& v : y) v = v <= 0 ? 0 : v;
      CheckRows(spec.y, y);
      for (std::size_t i = 0; i < y.size(); ++i) dx[i] = y[i] > 0 ? dx[i] : 0;
      CheckRows(spec.dx.tensor, Head(dx, kRows, kShape));
      CHECK(*spec.dx.scale == 4);
      CHECK(!std::isfinite(spec.dx.moments->mean_square));
      spec.dy.tensor = bench.Make(kShape, kind.format, Random(kShape, 3));
      const auto tame = bench->Make(spec);
      tame->Backward(MakePass(kRows));
      CheckMoments(*spec.dx.moments, Head(Bench::Get(spec.dx.tensor), kRows, kShape));
    }
  }

  TEST_CASE("add: two and three inputs, summed left to right in fp32, rounded once") {
    for (const Kind& kind : MainKinds())
      for (const std::size_t inputs : {2u, 3u}) {
        CAPTURE(kind.name);
        CAPTURE(inputs);
        Bench bench;
        AddSpec spec;
        Values sum(static_cast<std::size_t>(kShape.numel()));
        for (std::size_t k = 0; k < inputs; ++k) {
          spec.x.push_back(bench.Make(kShape, kind.format,
                                      Spread(kFp16, static_cast<std::size_t>(kShape.numel()), k)));
          const Values x = Bench::Get(spec.x[k]);
          for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = k == 0 ? x[i] : sum[i] + x[i];
        }
        spec.y = bench.Make(kShape, kind.format), spec.y_stats = bench.Stats();
        bench->Make(spec)->Forward(MakePass(kRows));
        sum = Head(sum, kRows, kShape);
        CheckRows(spec.y, RoundAll(kind.format, sum));
        CheckStats(*spec.y_stats, kind.format, sum);
      }
  }

  TEST_CASE("slice: some channels of every pixel; dx is zero beside them") {
    for (const Kind& kind : MainKinds())
      for (const int first : {0, 2, 4}) {
        CAPTURE(kind.name);
        CAPTURE(first);
        Bench bench;
        SliceSpec spec;
        const Shape x{5, 9, 8, 7}, y{5, 9, 8, 3};
        spec.first = first;
        spec.x = bench.Make(x, kind.format, Random(x, 1)), spec.y = bench.Make(y, kind.format);
        spec.dy = bench.MakeGradient(y, kind.format, Random(y, 2), 2);
        spec.dx = bench.MakeGradient(x, kind.format);
        spec.dx.stats = nullptr;
        Bench::Set(spec.dx.tensor, Random(x, 3));
        const Values in = Bench::Get(spec.x), dy = Bench::Get(spec.dy.tensor);
        Values want_dx = Bench::Get(spec.dx.tensor);
        const auto op = bench->Make(spec);
        op->Forward(MakePass(3));
        op->Backward(MakePass(3));
        Values want_y(static_cast<std::size_t>(y.numel()));
        for (std::size_t pixel = 0; pixel < 3 * 9 * 8; ++pixel)
          for (std::size_t c = 0; c < 7; ++c) {
            const std::size_t part = c - static_cast<std::size_t>(first);  // wraps below `first`
            if (part < 3) want_y[pixel * 3 + part] = in[pixel * 7 + c];
            want_dx[pixel * 7 + c] = part < 3 ? dy[pixel * 3 + part] : 0;
          }
        CheckEqual(spec.y, want_y);
        CheckEqual(spec.dx.tensor, want_dx);
        CHECK(*spec.dx.scale == *spec.dy.scale);
      }
  }

  TEST_CASE("shortcut A: every second pixel, new channels half before and half after") {
    for (const Kind& kind : MainKinds())
      for (const std::int64_t channels : {6, 9, 32}) {
        CAPTURE(kind.name);
        CAPTURE(channels);
        Bench bench;
        ShortcutSpec spec;
        const Shape x{5, 9, 8, channels}, y{5, 5, 4, 2 * channels};
        spec.stride = {2, 2};
        spec.x = bench.Make(x, kind.format, Random(x, 1)), spec.y = bench.Make(y, kind.format);
        spec.dy = bench.MakeGradient(y, kind.format, Random(y, 2), 2);
        spec.dx = bench.MakeGradient(x, kind.format);
        spec.dx.stats = nullptr;
        Bench::Set(spec.dx.tensor, Random(x, 3));
        const Values in = Bench::Get(spec.x), dy = Bench::Get(spec.dy.tensor);
        const Values old = Bench::Get(spec.dx.tensor);
        const auto op = bench->Make(spec);
        op->Forward(MakePass(3));
        op->Backward(MakePass(3));
        Values want_y(static_cast<std::size_t>(y.numel())), want_dx(in.size());
        std::copy(old.begin() + 3 * x.per_image(), old.end(), want_dx.begin() + 3 * x.per_image());
        for (std::int64_t n = 0; n < 3; ++n)
          for (std::int64_t h = 0; h < y.h; ++h)
            for (std::int64_t w = 0; w < y.w; ++w)
              for (std::int64_t c = 0; c < channels; ++c) {
                const auto to =
                    static_cast<std::size_t>(((n * y.h + h) * y.w + w) * y.c + c + channels / 2);
                const auto from =
                    static_cast<std::size_t>(((n * x.h + 2 * h) * x.w + 2 * w) * x.c + c);
                want_y[to] = in[from];
                want_dx[from] = dy[to];
              }
        CheckEqual(spec.y, want_y);
        CheckEqual(spec.dx.tensor, want_dx);
        CheckMoments(*spec.dx.moments, Head(want_dx, 3, x));
        CHECK(*spec.dx.scale == 2);
      }
  }

  TEST_CASE("flatten: channel, row, column") {
    const Shape x{5, 3, 4, 7}, y{5, 1, 1, 84};
    for (const Kind& kind : MainKinds()) {
      CAPTURE(kind.name);
      Bench bench;
      FlattenSpec spec;
      spec.x = bench.Make(x, kind.format, Random(x, 1)), spec.y = bench.Make(y, kind.format);
      spec.dy = bench.MakeGradient(y, kind.format, Random(y, 2), 2);
      spec.dx = bench.MakeGradient(x, kind.format);
      spec.dx.stats = nullptr;
      const Values in = Bench::Get(spec.x), dy = Bench::Get(spec.dy.tensor);
      const auto op = bench->Make(spec);
      op->Forward(MakePass(4));
      op->Backward(MakePass(4));
      Values want_y(in.size()), want_dx(in.size());
      for (std::size_t n = 0; n < 4; ++n)
        for (std::size_t pixel = 0; pixel < 12; ++pixel)
          for (std::size_t c = 0; c < 7; ++c) {
            want_y[n * 84 + c * 12 + pixel] = in[(n * 12 + pixel) * 7 + c];
            want_dx[(n * 12 + pixel) * 7 + c] = dy[n * 84 + c * 12 + pixel];
          }
      CheckEqual(spec.y, want_y);
      CheckEqual(spec.dx.tensor, want_dx);
      CheckMoments(*spec.dx.moments, Head(want_dx, 4, x));
    }
  }
}

}  // namespace ada::backend::test
