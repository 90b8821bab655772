// Factors of channels and of images, and repeated pixels, against loops.
#include <doctest/doctest.h>

#include "backend/naive_count.h"
#include "backend/op_bench.h"

namespace ada::backend::test {
namespace {

const Shape kShape = {7, 20, 13, 37};
constexpr int kRows = 5;

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
  spec.dy = bench.MakeGradient(y, kind.format, Normal(Size(y, 7), 1, 2), 16);
  spec.dx = bench.MakeGradient(x, kind.format);
  return spec;
}
Pass PassOf(std::uint64_t draw, bool training = true) {
  Pass pass = MakePass(kRows);
  pass.seed = 11, pass.draw = draw, pass.training = training;
  return pass;
}
// By image what y is of x: 0, or the factor; -1: neither.
std::vector<double> FactorsOf(const Values& x, const Values& y, int rows) {
  std::vector<double> factors;
  const std::size_t each = Size(kShape, 1);
  for (int n = 0; n < rows; ++n) {
    const std::size_t first = static_cast<std::size_t>(n) * each;
    double factor = 0;
    for (std::size_t i = first; i < first + each; ++i)
      if (y[i] != 0) factor = 4.0 / 3;
    for (std::size_t i = first; i < first + each; ++i)
      if (y[i] != (factor == 0 ? 0 : x[i] * (1 / (1 - 0.25f)))) factor = -1;
    factors.push_back(factor);
  }
  return factors;
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("channel scale: y, dx, and dw as a sum over all pixels") {
    for (const Kind& kind : MainKinds())
      for (const bool accumulate : {false, true}) {
        CAPTURE(kind.name);
        CAPTURE(accumulate);
        Bench bench;
        auto spec = MakeSpec<ChannelScaleSpec>(bench, kind, kShape, kShape);
        spec.y_stats = bench.Stats();
        spec.w = bench.Vector(Normal(37, 1, 3)), spec.dw = bench.Vector(Values(37, 5));
        const auto op = bench->Make(spec);
        Pass pass = MakePass(kRows);
        pass.accumulate = accumulate;
        op->Forward(pass);
        op->Backward(pass);
        const Values x = Bench::Get(spec.x), dy = Bench::Get(spec.dy.tensor),
                     w = Bench::Get(spec.w);
        Values y, dx;
        Sums dw(37);
        for (std::size_t i = 0; i < Size(kShape, kRows); ++i) {
          const std::size_t c = i % 37;
          y.push_back(x[i] * w[c]), dx.push_back(dy[i] * w[c]);
          dw[c].Add(static_cast<double>(dy[i]) * static_cast<double>(x[i]) / 16);
        }
        if (accumulate)
          for (Exact& sum : dw) sum.Add(5);
        CheckEqual(spec.y, Head(RoundAll(kind.format, y), Size(kShape, 7)));
        CheckStats(*spec.y_stats, kind.format, y);
        CheckEqual(spec.dx.tensor, Head(RoundAll(kind.format, dx), Size(kShape, 7)));
        CheckStats(*spec.dx.stats, kind.format, dx);
        CheckTensor(spec.dw, dw);
        CHECK(*spec.dx.scale == 16);
        // Where nothing before it is trained.
        const Values was = Bench::Get(spec.dw);
        Bench::Set(spec.dw, Values(37, 5));
        spec.dx = {};
        bench->Make(spec)->Backward(pass);
        CheckEqual(spec.dw, was);
      }
  }

  TEST_CASE("stochastic depth: whole images, the same ones backwards, others in another step") {
    for (const bool batch : {false, true}) {
      CAPTURE(batch);
      Bench bench;
      auto spec = MakeSpec<StochasticDepthSpec>(bench, MainKinds()[0], kShape, kShape);
      spec.rate = 0.25f, spec.batch = batch, spec.stream = 5, spec.y_stats = bench.Stats();
      const auto op = bench->Make(spec);
      const Values x = Bench::Get(spec.x), dy = Bench::Get(spec.dy.tensor);
      int kept = 0, mixed = 0;
      for (std::uint64_t draw = 0; draw < 200; ++draw) {
        op->Forward(PassOf(draw));
        op->Backward(PassOf(draw));
        const std::vector<double> factors = FactorsOf(x, Bench::Get(spec.y), kRows);
        CHECK(factors == FactorsOf(dy, Bench::Get(spec.dx.tensor), kRows));
        for (const double factor : factors) {
          CHECK(factor >= 0);
          kept += factor > 0;
          mixed += factor != factors[0];
        }
      }
      // 1,000 draws, or 200 of five images each: within four deviations.
      CHECK(std::abs(kept - 750) < (batch ? 4 * 31 : 4 * 14));
      CHECK((mixed > 0) == !batch);
      CHECK(spec.y_stats->numel == static_cast<std::int64_t>(Size(kShape, kRows)));
      op->Forward(PassOf(0, false));
      CheckEqual(spec.y, Head(Head(x, Size(kShape, kRows)), x.size()));
    }
  }

  TEST_CASE("affine: y by factor and offset of the channel, dx by the factor") {
    for (const Kind& kind : MainKinds()) {
      CAPTURE(kind.name);
      Bench bench;
      auto spec = MakeSpec<AffineSpec>(bench, kind, kShape, kShape);
      spec.y_stats = bench.Stats();
      spec.factor = bench.Vector(Normal(37, 1, 3)), spec.offset = bench.Vector(Normal(37, 1, 4));
      const auto op = bench->Make(spec);
      op->Forward(MakePass(kRows));
      op->Backward(MakePass(kRows));
      const Values x = Bench::Get(spec.x), dy = Bench::Get(spec.dy.tensor);
      const Values factor = Bench::Get(spec.factor), offset = Bench::Get(spec.offset);
      Values y, dx;
      for (std::size_t i = 0; i < Size(kShape, kRows); ++i) {
        const float product = x[i] * factor[i % 37];
        y.push_back(product + offset[i % 37]), dx.push_back(dy[i] * factor[i % 37]);
      }
      CheckEqual(spec.y, Head(RoundAll(kind.format, y), Size(kShape, 7)));
      CheckStats(*spec.y_stats, kind.format, y);
      CheckEqual(spec.dx.tensor, Head(RoundAll(kind.format, dx), Size(kShape, 7)));
      CHECK(*spec.dx.scale == *spec.dy.scale);
    }
  }

  TEST_CASE("upsample: pixels repeated; dx is the fp32 sum of the copies, rounded once") {
    const Shape x = {7, 5, 3, 19};
    for (const int scale : {1, 2, 3})
      for (const Kind& kind : MainKinds()) {
        CAPTURE(kind.name);
        CAPTURE(scale);
        Bench bench;
        const Shape y = {7, 5 * scale, 3 * scale, 19};
        auto spec = MakeSpec<UpsampleSpec>(bench, kind, x, y);
        spec.scale = scale;
        const auto op = bench->Make(spec);
        op->Forward(MakePass(kRows));
        op->Backward(MakePass(kRows));
        const Values in = Bench::Get(spec.x), dy = Bench::Get(spec.dy.tensor);
        Values want(Size(y, 7)), before(Size(x, kRows));
        for (std::size_t i = 0; i < Size(y, kRows); ++i) {
          const auto at = static_cast<std::int64_t>(i);
          const std::int64_t c = at % y.c, w = at / y.c % y.w, h = at / y.c / y.w % y.h,
                             n = at / y.per_image();
          const auto from =
              static_cast<std::size_t>(((n * x.h + h / scale) * x.w + w / scale) * x.c + c);
          want[i] = in[from], before[from] = before[from] + dy[i];
        }
        CheckEqual(spec.y, want);
        CheckEqual(spec.dx.tensor, Head(RoundAll(kind.format, before), Size(x, 7)));
        CheckStats(*spec.dx.stats, kind.format, before);
        CHECK(*spec.dx.scale == 16);
      }
  }
}

}  // namespace ada::backend::test
