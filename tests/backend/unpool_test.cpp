// Pooling with positions and unpooling against what ChainerCV computed: every value. Beside it
// sizes and windows of our own: exact odd sizes, windows that leave pixels out, formats, partial
// batches.
#include <doctest/doctest.h>

#include "backend/recorded_vision.h"

namespace ada::backend::test {
namespace {

std::uint16_t* Positions(Bench& bench, const std::vector<std::int32_t>& values) {
  auto* positions = reinterpret_cast<std::uint16_t*>(bench->Allocate(2 * values.size()));
  for (std::size_t i = 0; i < values.size(); ++i)
    positions[i] = static_cast<std::uint16_t>(values[i]);
  return positions;
}

void CheckPool(const VisionCase& c) {
  Bench bench;
  MaxPoolSpec pool;
  const Shape x = c.ShapeOf("x"), y = c.ShapeOf("y");
  const std::vector<std::int32_t> want = VisionCase::ToNhwc(c.Integers("indices"), y);
  pool.kernel = pool.stride = {2, 2};
  pool.x = bench.Make(x, kFp32, c.Nhwc("x")), pool.y = bench.Make(y, kFp32);
  pool.dy = bench.MakeGradient(y, kFp32, c.Nhwc("gy"), 1);
  pool.dx = bench.MakeGradient(x, kFp32), pool.dx.stats = nullptr;
  pool.positions = Positions(bench, std::vector<std::int32_t>(want.size(), 99));
  const auto op = bench->Make(pool);
  const Pass pass = MakePass(static_cast<int>(x.n));
  op->Forward(pass);
  op->Backward(pass);
  // Zeros of either sign are equal.
  CHECK(Bench::Get(pool.y) == c.Nhwc("y"));
  CHECK(Bench::Get(pool.dx.tensor) == c.Nhwc("gx"));
  for (std::size_t i = 0; i < want.size(); ++i) REQUIRE(pool.positions[i] == want[i]);
}

void CheckUnpool(const VisionCase& c) {
  Bench bench;
  MaxUnpoolSpec spec;
  const Shape z = c.ShapeOf("z"), up = c.ShapeOf("up");
  spec.pooled = c.ShapeOf("indices");
  spec.kernel = spec.stride = {2, 2};
  spec.x = bench.Make(z, kFp32, c.Nhwc("z")), spec.y = bench.Make(up, kFp32);
  spec.dy = bench.MakeGradient(up, kFp32, c.Nhwc("gup"), 4);
  spec.dx = bench.MakeGradient(z, kFp32), spec.dx.stats = nullptr;
  spec.positions = Positions(bench, VisionCase::ToNhwc(c.Integers("indices"), spec.pooled));
  const auto op = bench->Make(spec);
  const Pass pass = MakePass(static_cast<int>(z.n));
  op->Forward(pass);
  op->Backward(pass);
  CHECK(Bench::Get(spec.y) == c.Nhwc("up"));
  CHECK(Bench::Get(spec.dx.tensor) == c.Nhwc("gz"));
  CHECK(*spec.dx.scale == 4);
}

struct Sizes {
  Shape x;
  std::array<int, 2> kernel, stride, padding;
  bool ceil;
  std::int64_t Out(std::int64_t size, std::size_t d) const {
    const std::int64_t rest = size + 2 * padding[d] - kernel[d];
    return (ceil ? (rest + stride[d] - 1) / stride[d] : rest / stride[d]) + 1;
  }
  Shape y() const { return {x.n, Out(x.h, 0), Out(x.w, 1), x.c}; }
};

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("max_pool with positions, max_unpool: as recorded") {
    ForRecorded("ops", "unpool", [](const VisionCase& c) {
      if (c.Has("x")) CheckPool(c);
      CheckUnpool(c);
    });
  }

  TEST_CASE("max_unpool gives a pool's maxima back to their places, whatever the windows are") {
    for (const Sizes& s : {Sizes{{3, 9, 7, 5}, {2, 2}, {2, 2}, {0, 0}, true},
                           Sizes{{3, 9, 7, 20}, {2, 2}, {2, 2}, {0, 0}, false},
                           Sizes{{3, 8, 11, 16}, {3, 2}, {3, 4}, {1, 0}, false},
                           Sizes{{3, 10, 10, 33}, {1, 3}, {2, 3}, {0, 1}, false}})
      for (const NumberFormat& format : {kFp32, kFp16, kBf16}) {
        CAPTURE(ToString(s.x));
        CAPTURE(FormatName(format));
        Bench bench;
        const auto n = static_cast<std::size_t>(s.x.numel());
        MaxPoolSpec pool;
        pool.kernel = s.kernel, pool.stride = s.stride, pool.padding = s.padding;
        // Positive, so that a zero is nobody's maximum.
        Values x = Normal(n, 1, 1);
        for (float& v : x) v = std::fabs(v) + 0.5f;
        pool.x = bench.Make(s.x, format, x), pool.y = bench.Make(s.y(), format);
        pool.positions =
            Positions(bench, std::vector<std::int32_t>(static_cast<std::size_t>(s.y().numel()), 0));
        MaxUnpoolSpec unpool;
        unpool.kernel = s.kernel, unpool.stride = s.stride, unpool.padding = s.padding;
        unpool.pooled = s.y(), unpool.positions = pool.positions;
        unpool.x = pool.y, unpool.y = bench.Make(s.x, format, Values(n, 3));
        unpool.dy = bench.MakeGradient(s.x, format, Normal(n, 1, 2), 8);
        unpool.dx = bench.MakeGradient(s.y(), format), unpool.dx.stats = nullptr;
        const Pass pass = MakePass(2);
        bench->Make(pool)->Forward(pass);
        const auto op = bench->Make(unpool);
        op->Forward(pass);
        op->Backward(pass);
        const Values given = Bench::Get(pool.x), back = Bench::Get(unpool.y);
        const auto all = static_cast<std::size_t>(2 * s.x.per_image());
        std::int64_t kept = 0, wrong = 0;
        for (std::size_t i = 0; i < all; ++i) {
          kept += back[i] != 0 ? 1 : 0;
          wrong += back[i] != 0 && back[i] != given[i] ? 1 : 0;
        }
        CHECK(kept == 2 * s.y().per_image());
        CHECK(wrong == 0);
        for (std::size_t i = all; i < n; ++i) REQUIRE(back[i] == 3);  // of no row
        // dx: the values of dy at the same places, in the windows' order.
        const Values dy = Bench::Get(unpool.dy.tensor), dx = Bench::Get(unpool.dx.tensor);
        double of_dx = 0, of_dy = 0;
        for (std::size_t i = 0; i < all; ++i)
          of_dy += back[i] != 0 ? static_cast<double>(dy[i] * back[i]) : 0;
        const Values pooled = Bench::Get(pool.y);
        for (std::size_t i = 0; i < static_cast<std::size_t>(2 * s.y().per_image()); ++i)
          of_dx += static_cast<double>(dx[i] * pooled[i]);
        CHECK(of_dx == doctest::Approx(of_dy).epsilon(1e-9));
        CHECK(unpool.dx.moments->mean_square > 0);
      }
  }
}

}  // namespace ada::backend::test
