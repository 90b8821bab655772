// A fused batch norm rounds and counts where its parts do: values and statistics agree bit for bit,
// and so do channel moments from a convolution's epilogue with batch norm's own.
#include <doctest/doctest.h>

#include "backend/naive_batch_norm.h"
#include "backend/naive_count.h"
#include "backend/naive_matmul.h"

namespace ada::backend::test {
namespace {

void CheckSame(const TensorStats& a, const TensorStats& b) {
  CHECK(a.numel == b.numel);
  CHECK(a.zeros_before == b.zeros_before);
  CHECK(a.zeros_after == b.zeros_after);
  CHECK(a.underflow == b.underflow);
  CHECK(a.below_min == b.below_min);
  CHECK(a.subnormal == b.subnormal);
  CHECK(a.overflow == b.overflow);
  CHECK(a.min_abs == b.min_abs);
  CHECK(a.max_abs == b.max_abs);
  CHECK(Near(a.mean, b.mean, 1e-12 * b.l1));
  CHECK(Near(a.l2, b.l2, 1e-12 * b.l2));
}

// Batch norm, addition and relu as ops of their own on the same input.
struct Parts {
  Parts(Bench& bench, const BatchNormSpec& fused) : norm(fused) {
    const Shape& shape = fused.x.shape;
    const NumberFormat& format = fused.x.format;
    norm.addend = Tensor{}, norm.relu = false;
    norm.sum_stats = nullptr, norm.y_stats = bench.Stats();
    norm.out = bench.Make(shape, format);
    norm.dgamma = bench.Make(fused.dgamma.shape, kFp32);
    norm.dbeta = bench.Make(fused.dbeta.shape, kFp32);
    norm.dx = bench.MakeGradient(shape, format);
    add.x = {norm.out, fused.addend}, add.y = bench.Make(shape, format);
    add.y_stats = bench.Stats();
    relu.x = fused.addend ? add.y : norm.out, relu.y = bench.Make(shape, format);
    relu.dy = fused.dy, relu.dx = bench.MakeGradient(shape, format);
    norm.dy = fused.relu ? relu.dx : fused.dy;
    last = fused.relu ? relu.y : relu.x;
  }
  void Step(Bench& bench, const Pass& pass) {
    const auto a = bench->Make(norm);
    const auto c = bench->Make(relu);
    a->Forward(pass);
    if (add.x[1]) bench->Make(add)->Forward(pass);
    c->Forward(pass);
    c->Backward(pass);
    a->Backward(pass);
  }
  BatchNormSpec norm;
  AddSpec add;
  ReluSpec relu;
  Tensor last;
};

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("fusion: batch norm with sum and relu equals its parts, bit for bit") {
    for (const BatchNormCase& c : BatchNormCases())
      for (const Kind& kind : MainKinds())
        for (const bool training : {true, false}) {
          CAPTURE(c.name);
          CAPTURE(kind.name);
          CAPTURE(training);
          Bench bench;
          BatchNormBench b(bench, c, kind.format, 8);
          Bench::Set(b.spec.gamma, Spread(kFp16, static_cast<std::size_t>(c.x.c), 11));
          Parts parts(bench, b.spec);
          const Values mean = Bench::Get(b.spec.running_mean), var = Bench::Get(b.spec.running_var);
          Pass pass = MakePass(c.rows);
          pass.training = training;
          parts.Step(bench, pass);
          Bench::Set(b.spec.running_mean, mean), Bench::Set(b.spec.running_var, var);
          const auto fused = bench->Make(b.spec);
          fused->Forward(pass);
          fused->Backward(pass);
          CheckEqual(b.spec.out, Bench::Get(parts.last));
          CheckEqual(b.spec.dx.tensor, Bench::Get(parts.norm.dx.tensor));
          CheckEqual(b.spec.dgamma, Bench::Get(parts.norm.dgamma));
          CheckEqual(b.spec.dbeta, Bench::Get(parts.norm.dbeta));
          CheckSame(*b.spec.y_stats, *parts.norm.y_stats);
          CheckSame(*b.spec.dx.stats, *parts.norm.dx.stats);
          if (c.addend) CheckSame(*b.spec.sum_stats, *parts.add.y_stats);
        }
  }

  // Evaluation: y = (x - mean) * factor + beta in fp32, each operation rounded, from known numbers.
  TEST_CASE("fusion: y and the sum are each counted at their own rounding") {
    const BatchNormCase c = {"counting", {9, 8, 8, 19}, 7, true, true};
    for (const Kind& kind : MainKinds()) {
      CAPTURE(kind.name);
      Bench bench;
      BatchNormBench b(bench, c, kind.format, 1);
      const std::size_t k = 19, n = static_cast<std::size_t>(c.rows * c.x.per_image());
      Bench::Set(b.spec.gamma, Spread(kFp16, k, 12)), Bench::Set(b.spec.beta, Normal(k, 1e-7, 13));
      Bench::Set(b.spec.addend, Normal(static_cast<std::size_t>(c.x.numel()), 1e-7, 14));
      Pass pass = MakePass(c.rows);
      pass.training = false;
      bench->Make(b.spec)->Forward(pass);
      const Values x = Bench::Get(b.spec.x), addend = Bench::Get(b.spec.addend);
      Values y, sum;
      for (std::size_t i = 0; i < n; ++i) {
        const auto var = static_cast<double>(b.spec.running_var.f32()[i % k]);
        const auto inverse =
            static_cast<float>(1 / std::sqrt(var + static_cast<double>(b.spec.eps)));
        const float factor = b.spec.gamma.f32()[i % k] * inverse;
        const float deviation = x[i] - b.spec.running_mean.f32()[i % k];
        const float product = deviation * factor;
        y.push_back(product + b.spec.beta.f32()[i % k]);
        sum.push_back(RoundTo(kind.format, y[i]) + addend[i]);
      }
      CheckStats(*b.spec.y_stats, kind.format, y);
      CheckStats(*b.spec.sum_stats, kind.format, sum);
    }
  }

  TEST_CASE("fusion: a convolution's channel moments give what batch norm takes itself") {
    const std::array<int, 2> one = {1, 1}, three = {3, 3};
    for (const Kind& kind : MainKinds())
      for (const int rows : {11, 7}) {
        CAPTURE(kind.name);
        CAPTURE(rows);
        Bench bench;
        const MatmulCase c{"conv", {11, 16, 16, 3}, 20, three, one, one, one, 1, false};
        MatmulBench conv(bench, c, kind.format, 1, 1);
        const std::int64_t blocks = 11 / bench->BlockImages(c.y()) + 1;
        Tensor mean = bench.Make({blocks, 1, 1, 20}, kFp32), m2 = bench.Make(mean.shape, kFp32);
        conv.spec.y_moments = {mean.f32(), m2.f32()};
        const auto op = conv.MakeOp(bench);
        op->RefreshWeights({});
        op->Forward(MakePass(rows));
        Values results[2];
        for (const bool own : {false, true}) {
          BatchNormBench b(bench, {"bn", c.y(), rows, false, true}, kind.format, 1);
          b.spec.x = conv.spec.y;
          if (!own) b.spec.x_moments = conv.spec.y_moments;
          bench->Make(b.spec)->Forward(MakePass(rows));
          results[own] = Bench::Get(b.spec.out);
          for (const Tensor& t : {b.spec.running_mean, b.spec.running_var}) {
            const Values more = Bench::Get(t);
            results[own].insert(results[own].end(), more.begin(), more.end());
          }
        }
        CHECK(FirstDifference(results[0], results[1]) == -1);
      }
  }
}

}  // namespace ada::backend::test
