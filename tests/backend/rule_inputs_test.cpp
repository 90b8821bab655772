// What rules look at: extremes of products and logarithms against loops over all values.
#include "backend/cpu/rounding/rule_inputs.h"

#include <doctest/doctest.h>

#include "backend/op_bench.h"
#include "backend/product_range.h"

namespace ada::backend::test {
namespace {

const float kInf = std::numeric_limits<float>::infinity();

// What functions of ops need, with some threads.
struct Tools {
  explicit Tools(int threads) : pool(threads), scratch(threads) {}
  cpu::ThreadPool pool;
  cpu::Scratch scratch;
  cpu::Context context{pool, cpu::SelectKernels(), scratch};
};

// Zeros here and there and in whole channels of dy (3) and w (5).
constexpr std::int64_t kChannels = 19;
Values Sparse(std::size_t n, double sigma, std::uint64_t seed) {
  Values values = Normal(n, sigma, seed);
  for (std::size_t i = 0; i < n; i += 3) values[i] = i % 2 == 0 ? 0.0f : -0.0f;
  return values;
}
scaling::Observation Observe(Tools& tools, const Tensor& dy, const Values& w, int rows) {
  scaling::Observation seen;
  const auto row = static_cast<std::int64_t>(w.size()) / dy.shape.c;
  cpu::ObserveProducts(cpu::MagnitudesOfImages(tools.context, dy, rows),
                       cpu::MagnitudesOfRows(tools.context, w.data(), {1, 1, dy.shape.c, row}),
                       seen);
  return seen;
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("observed products: extremes over the channels in which both have non-zeros") {
    const Shape shape{9, 4, 4, kChannels};
    Values dy = Sparse(static_cast<std::size_t>(shape.numel()), 1e-3, 1),
           w = Sparse(kChannels * 12, 0.1, 2);
    for (std::size_t i = 3; i < dy.size(); i += kChannels) dy[i] = 0;
    std::fill_n(w.begin() + 5 * 12, 12, -0.0f);
    dy[5] = 50, w[3 * 12] = 70;  // meet zeros alone
    for (const Kind& kind : MainKinds())
      for (const int rows : {9, 7, 1})
        for (const int threads : {1, 3}) {
          CAPTURE(kind.name);
          CAPTURE(rows);
          Tools tools(threads);
          Bench bench;
          const Tensor t = bench.Make(shape, kind.format, dy);
          const scaling::Observation seen = Observe(tools, t, w, rows);
          Values stored = Bench::Get(t);
          stored.resize(static_cast<std::size_t>(rows * shape.per_image()));
          const MatmulRange want = RangeOf(stored, w, kChannels);
          CHECK(seen.product_min == want.min);
          CHECK(seen.product_max == want.max);
        }
  }

  TEST_CASE("observed products: weights of transposed convolutions lie by input") {
    constexpr std::int64_t kGroups = 2, kInputs = 3, kOutputs = 5, kTaps = 4;
    const Shape shape{3, 4, 4, kGroups * kOutputs};
    const Values dy = Sparse(static_cast<std::size_t>(shape.numel()), 1e-3, 1);
    Values w = Sparse(kGroups * kInputs * kOutputs * kTaps, 0.1, 2);
    Values by_output;
    for (std::int64_t o = 0; o < shape.c; ++o)
      for (std::int64_t i = 0; i < kInputs; ++i)
        for (std::int64_t t = 0; t < kTaps; ++t) {
          const std::int64_t row = (o / kOutputs * kInputs + i) * kOutputs + o % kOutputs;
          by_output.push_back(w[static_cast<std::size_t>(row * kTaps + t)]);
        }
    Tools tools(2);
    Bench bench;
    const Tensor t = bench.Make(shape, kFp32, dy);
    scaling::Observation seen;
    cpu::ObserveProducts(
        cpu::MagnitudesOfImages(tools.context, t, 3),
        cpu::MagnitudesOfRows(tools.context, w.data(), {kGroups, kInputs, kOutputs, kTaps}), seen);
    const MatmulRange want = RangeOf(dy, by_output, shape.c);
    CHECK(seen.product_min == want.min);
    CHECK(seen.product_max == want.max);
  }

  TEST_CASE("observed products: none at all, and gradients that are not finite") {
    Tools tools(2);
    Bench bench;
    const Shape shape{5, 2, 2, 3};
    const Values w = {1, 2, 0, 0, 3, 4};
    Values dy(static_cast<std::size_t>(shape.numel()));
    for (std::size_t i = 1; i < dy.size(); i += 3) dy[i] = 2;  // channel 1, whose weights are 0
    const Tensor t = bench.Make(shape, kFp16, dy);
    CHECK(Observe(tools, t, w, 5).product_min == 0);
    CHECK(Observe(tools, t, w, 5).product_max == 0);
    for (const std::size_t at : {0u, 1u}) {
      dy[at] = -kInf;
      Bench::Set(t, dy);
      CHECK(std::isinf(Observe(tools, t, w, 5).product_max));
      dy[4] = std::nanf("");
      Bench::Set(t, dy);
      CHECK(std::isnan(Observe(tools, t, w, 5).product_max));
      dy[at] = dy[4] = 1;
    }
  }

  TEST_CASE("observed logarithms: mean and deviation over non-zeros, the same with any threads") {
    const Shape shape{40, 8, 8, kChannels};
    for (const Kind& kind : MainKinds()) {
      CAPTURE(kind.name);
      Bench bench;
      const auto n = static_cast<std::size_t>(shape.numel());
      const Tensor t = bench.Make(shape, kind.format, Sparse(n, 1e-3, 3));
      double count = 0, mean = 0, square = 0;
      Values stored = Bench::Get(t);
      stored.resize(static_cast<std::size_t>(37 * shape.per_image()));
      for (const float v : stored)
        if (v != 0) count += 1, mean += std::log(Abs(v));
      mean /= count;
      for (const float v : stored)
        if (v != 0) square += std::pow(std::log(Abs(v)) - mean, 2);
      scaling::Observation first;
      for (const int threads : {1, 2, 3, 4}) {
        Tools tools(threads);
        scaling::Observation seen;
        cpu::ObserveLogs(tools.context, t, 37, seen);
        CHECK(seen.log_mean == doctest::Approx(mean).epsilon(1e-12));
        CHECK(seen.log_std == doctest::Approx(std::sqrt(square / count)).epsilon(1e-12));
        if (threads == 1) first = seen;
        CHECK(seen.log_mean == first.log_mean);
        CHECK(seen.log_std == first.log_std);
      }
    }
  }

  TEST_CASE("observed logarithms: equal magnitudes have no deviation; zeros alone give zeros") {
    Tools tools(2);
    Bench bench;
    const Shape shape{40, 8, 8, 3};
    Values values(static_cast<std::size_t>(shape.numel()), 0.3f);
    for (std::size_t i = 0; i < values.size(); i += 2) values[i] = i % 3 == 0 ? 0.0f : -0.3f;
    scaling::Observation seen;
    cpu::ObserveLogs(tools.context, bench.Make(shape, kFp32, values), 40, seen);
    CHECK(seen.log_std == 0);
    CHECK(seen.log_mean == doctest::Approx(std::log(Abs(0.3f))).epsilon(1e-14));
    cpu::ObserveLogs(tools.context, bench.Make(shape, kFp32), 40, seen);
    CHECK(seen.log_std == 0);
    CHECK(seen.log_mean == 0);
  }
}

}  // namespace ada::backend::test
