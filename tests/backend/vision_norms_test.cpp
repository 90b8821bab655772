// Local response normalization and L2 normalization against what ChainerCV computed, and beside it
// the corners that it has no case for: even windows, windows wider than the channels, partial
// batches, 16 bits.
#include <doctest/doctest.h>

#include <cmath>

#include "backend/recorded_vision.h"

namespace ada::backend::test {
namespace {

template <class Spec>
void FillRecorded(Bench& bench, const VisionCase& c, Spec& spec) {
  const Shape shape = c.ShapeOf("x");
  spec.x = bench.Make(shape, kFp32, c.Nhwc("x")), spec.y = bench.Make(shape, kFp32);
  spec.dy = bench.MakeGradient(shape, kFp32, c.Nhwc("gy"), 1);
  spec.dx = bench.MakeGradient(shape, kFp32);
}

// PyTorch's definition, in double.
double NaiveLrn(const Values& x, std::int64_t i, std::int64_t channels, const LrnSpec& spec) {
  const std::int64_t c = i % channels;
  double squares = 0;
  for (std::int64_t k = c - spec.size / 2; k <= c + (spec.size - 1) / 2; ++k)
    if (k >= 0 && k < channels)
      squares += std::pow(static_cast<double>(x[static_cast<std::size_t>(i - c + k)]), 2);
  const double base = spec.k + spec.alpha * squares / spec.size;
  return static_cast<double>(x[static_cast<std::size_t>(i)]) * std::pow(base, -spec.beta);
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("lrn: as recorded") {
    ForRecorded("ops", "lrn", [](const VisionCase& c) {
      Bench bench;
      LrnSpec spec;
      FillRecorded(bench, c, spec);
      spec.size = static_cast<int>(c.Number("n"));
      spec.alpha = c.Number("alpha") * spec.size;
      spec.beta = c.Number("beta"), spec.k = c.Number("k");
      const auto op = bench->Make(spec);
      const Pass pass = MakePass(static_cast<int>(spec.x.shape.n));
      op->Forward(pass);
      op->Backward(pass);
      CheckNear("y", Bench::Get(spec.y), c.Nhwc("y"), 1e-6);
      CheckNear("gx", Bench::Get(spec.dx.tensor), c.Nhwc("gx"), 1e-5);
    });
  }

  TEST_CASE("lrn: every window, in fp16 with a batch that is not full") {
    for (const int size : {1, 2, 4, 5, 30})
      for (const std::int64_t channels : {1, 3, 17}) {
        CAPTURE(size);
        CAPTURE(channels);
        Bench bench;
        const Shape shape{3, 5, 7, channels};
        const auto n = static_cast<std::size_t>(shape.numel());
        LrnSpec spec;
        spec.x = bench.Make(shape, kFp16, Normal(n, 4, 1)), spec.y = bench.Make(shape, kFp16);
        spec.y_stats = bench.Stats();
        spec.size = size, spec.alpha = 0.25, spec.beta = 0.6, spec.k = 1.5;
        bench->Make(spec)->Forward(MakePass(2));
        const Values x = Bench::Get(spec.x);
        Sums want;
        for (std::int64_t i = 0; i < 2 * shape.per_image(); ++i) {
          const double y = NaiveLrn(x, i, channels, spec);
          want.push_back({y, std::fabs(y)});
        }
        CheckTensor(spec.y, want);
        CHECK(spec.y_stats->numel == 2 * shape.per_image());
      }
  }

  TEST_CASE("l2_normalize: as recorded") {
    ForRecorded("ops", "normalize", [](const VisionCase& c) {
      Bench bench;
      L2NormalizeSpec spec;
      FillRecorded(bench, c, spec);
      spec.gamma = bench.Vector(c.Read("scale"));
      spec.dgamma = bench.Vector(c.Read("scale"));
      spec.eps = static_cast<float>(c.Number("eps"));
      const auto op = bench->Make(spec);
      const Pass pass = MakePass(static_cast<int>(spec.x.shape.n));
      op->Forward(pass);
      op->Backward(pass);
      CheckNear("y", Bench::Get(spec.y), c.Nhwc("y"), 1e-6);
      CheckNear("gx", Bench::Get(spec.dx.tensor), c.Nhwc("gx"), 1e-5);
      CheckNear("gscale", Bench::Get(spec.dgamma), c.Read("gscale"), 1e-5);
    });
  }
}

}  // namespace ada::backend::test
