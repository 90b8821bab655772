// Trained slopes, means between pixels and channels that become pixels, in every main format,
// against loops.
#include <doctest/doctest.h>

#include <cmath>

#include "backend/naive_count.h"
#include "backend/op_bench.h"

namespace ada::backend::test {
namespace {

constexpr int kRows = 5;
constexpr float kScale = 16;

std::size_t Size(const Shape& shape, int rows) {
  return static_cast<std::size_t>(rows * shape.per_image());
}
Values Head(Values values, std::size_t size) {
  values.resize(size);
  return values;
}
template <class Spec>
Spec MakeSpec(Bench& bench, const Kind& kind, const Shape& x, const Shape& y) {
  Spec spec;
  spec.x = bench.Make(x, kind.format, Normal(Size(x, 7), 1, 1));
  spec.y = bench.Make(y, kind.format);
  spec.dy = bench.MakeGradient(y, kind.format, Normal(Size(y, 7), 1, 2), kScale);
  spec.dx = bench.MakeGradient(x, kind.format);
  return spec;
}

// Where place o of `out` lies among `in` pixels, and what the two around it have of it.
struct Place {
  std::int64_t first, second;
  double of_first, of_second;
};
Place PlaceOf(std::int64_t o, std::int64_t in, std::int64_t out, bool align_corners) {
  double at =
      align_corners
          ? (out > 1 ? static_cast<double>(o * (in - 1)) / static_cast<double>(out - 1) : 0)
          : (static_cast<double>(o) + 0.5) * static_cast<double>(in) / static_cast<double>(out) -
                0.5;
  at = std::max(at, 0.0);
  const auto first = std::min(static_cast<std::int64_t>(std::floor(at + 1e-12)), in - 1);
  const double above = std::max(at - static_cast<double>(first), 0.0);
  return {first, std::min(first + 1, in - 1), 1 - above, above};
}

// body(y index, x index, share) for all images.
template <class Body>
void ForShares(const Shape& x, const Shape& y, bool align_corners, Body&& body) {
  for (std::int64_t i = 0; i < kRows * y.per_image(); ++i) {
    const std::int64_t c = i % y.c, w = i / y.c % y.w, h = i / y.c / y.w % y.h,
                       n = i / y.per_image();
    const Place v = PlaceOf(h, x.h, y.h, align_corners), u = PlaceOf(w, x.w, y.w, align_corners);
    for (const auto& [row, rows] : {std::pair{v.first, v.of_first}, {v.second, v.of_second}})
      for (const auto& [column, columns] :
           {std::pair{u.first, u.of_first}, {u.second, u.of_second}})
        body(static_cast<std::size_t>(i),
             static_cast<std::size_t>(((n * x.h + row) * x.w + column) * x.c + c), rows * columns);
  }
}

void CheckBilinear(const Kind& kind, const Shape& x, int scale, bool align_corners) {
  CAPTURE(kind.name);
  CAPTURE(scale);
  CAPTURE(align_corners);
  Bench bench;
  const Shape y = {7, scale * x.h, scale * x.w, x.c};
  auto spec = MakeSpec<BilinearSpec>(bench, kind, x, y);
  spec.align_corners = align_corners, spec.y_stats = bench.Stats();
  const auto op = bench->Make(spec);
  op->Forward(MakePass(kRows));
  op->Backward(MakePass(kRows));
  const Values in = Bench::Get(spec.x), dy = Bench::Get(spec.dy.tensor);
  Sums means(Size(y, kRows)), sums(Size(x, kRows));
  ForShares(x, y, align_corners, [&](std::size_t yi, std::size_t xi, double share) {
    means[yi].Add(share * static_cast<double>(in[xi]));
    sums[xi].Add(share * static_cast<double>(dy[yi]));
  });
  CheckTensor(spec.y, means);
  CheckTensor(spec.dx.tensor, sums);
  CHECK(spec.y_stats->numel == static_cast<std::int64_t>(Size(y, kRows)));
  CHECK(spec.dx.stats->numel == static_cast<std::int64_t>(Size(x, kRows)));
  CHECK(*spec.dx.scale == kScale);
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("prelu: y and dx by the slope, dw as a sum over what is not positive") {
    const Shape shape = {7, 20, 13, 37};
    for (const Kind& kind : MainKinds())
      for (const std::size_t slopes : {1u, 37u}) {
        CAPTURE(kind.name);
        CAPTURE(slopes);
        Bench bench;
        auto spec = MakeSpec<PreluSpec>(bench, kind, shape, shape);
        spec.y_stats = bench.Stats();
        spec.w = bench.Vector(Normal(slopes, 1, 3)), spec.dw = bench.Vector(Values(slopes, 5));
        const auto op = bench->Make(spec);
        Pass pass = MakePass(kRows);
        pass.accumulate = true;
        op->Forward(pass);
        op->Backward(pass);
        const Values x = Bench::Get(spec.x), dy = Bench::Get(spec.dy.tensor),
                     w = Bench::Get(spec.w);
        Values y, dx;
        Sums dw(slopes);
        for (std::size_t i = 0; i < Size(shape, kRows); ++i) {
          const std::size_t c = i % 37 % slopes;
          y.push_back(x[i] > 0 ? x[i] : x[i] * w[c]), dx.push_back(x[i] > 0 ? dy[i] : dy[i] * w[c]);
          if (x[i] <= 0)
            dw[c].Add(static_cast<double>(dy[i]) * static_cast<double>(x[i]) /
                      static_cast<double>(kScale));
        }
        for (Exact& sum : dw) sum.Add(5);
        CheckEqual(spec.y, Head(RoundAll(kind.format, y), Size(shape, 7)));
        CheckStats(*spec.y_stats, kind.format, y);
        CheckEqual(spec.dx.tensor, Head(RoundAll(kind.format, dx), Size(shape, 7)));
        CheckStats(*spec.dx.stats, kind.format, dx);
        CheckTensor(spec.dw, dw);
        CHECK(*spec.dx.scale == kScale);
        // Where nothing before it is trained, and where dx lies where dy lies.
        pass.accumulate = false;
        op->Backward(pass);
        const Values slope_gradients = Bench::Get(spec.dw);
        spec.dx.tensor = spec.dy.tensor;
        bench->Make(spec)->Backward(pass);
        CheckEqual(spec.dw, slope_gradients);
        CHECK(Head(Bench::Get(spec.dx.tensor), Size(shape, kRows)) == RoundAll(kind.format, dx));
        Bench::Set(spec.dy.tensor, dy);
        spec.dx = {};
        bench->Make(spec)->Backward(pass);
        CheckEqual(spec.dw, slope_gradients);
      }
  }

  TEST_CASE("bilinear upsampling: means of four pixels, and their sums back, each rounded once") {
    for (const Kind& kind : MainKinds())
      for (const bool align_corners : {false, true}) {
        for (const int scale : {1, 2, 3, 4})
          CheckBilinear(kind, {7, 5, 3, 19}, scale, align_corners);
        CheckBilinear(kind, {7, 1, 6, 3}, 5, align_corners);
        CheckBilinear(kind, {7, 9, 1, 2}, 2, align_corners);
        CheckBilinear(kind, {7, 1, 1, 8}, 3, align_corners);
      }
  }

  TEST_CASE("pixel shuffle: channels become pixels, and pixels channels again") {
    const Shape x = {7, 3, 4, 36};
    for (const Kind& kind : MainKinds())
      for (const int r : {1, 2, 3, 6}) {
        CAPTURE(kind.name);
        CAPTURE(r);
        Bench bench;
        const Shape y = {7, 3 * r, 4 * r, 36 / (r * r)};
        auto spec = MakeSpec<PixelShuffleSpec>(bench, kind, x, y);
        spec.scale = r, spec.dx.stats = nullptr;
        const auto op = bench->Make(spec);
        op->Forward(MakePass(kRows));
        op->Backward(MakePass(kRows));
        const Values in = Bench::Get(spec.x), dy = Bench::Get(spec.dy.tensor);
        Values want(Size(y, 7)), back(Size(x, 7));
        for (std::size_t i = 0; i < Size(y, kRows); ++i) {
          const auto at = static_cast<std::int64_t>(i);
          const std::int64_t c = at % y.c, w = at / y.c % y.w, h = at / y.c / y.w % y.h,
                             n = at / y.per_image();
          const auto from = static_cast<std::size_t>(((n * x.h + h / r) * x.w + w / r) * x.c +
                                                     (c * r + h % r) * r + w % r);
          want[i] = in[from], back[from] = dy[i];
        }
        CheckEqual(spec.y, want);
        CheckEqual(spec.dx.tensor, back);
        CHECK(*spec.dx.scale == kScale);
      }
  }
}

}  // namespace ada::backend::test
