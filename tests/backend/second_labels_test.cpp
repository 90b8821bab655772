// Rows with two labels: loss, gradient and hits against sums in double, with and without smoothing.
#include <doctest/doctest.h>

#include <cmath>

#include "backend/op_bench.h"

namespace ada::backend::test {
namespace {

constexpr std::int64_t kMixRows = 5, kMixClasses = 70;

struct MixedRows {
  std::vector<std::int32_t> labels = {3, 3, 69, 0, 7}, second = {5, 3, 0, 1, 8};
  std::vector<float> shares = {0.25f, 0.7f, 0.5f, 1.0f, 0.0f};
  double Target(std::int64_t row, std::int64_t k, double smoothing) const {
    const auto i = static_cast<std::size_t>(row);
    const auto share = static_cast<double>(shares[i]);
    const double mixed = (labels[i] == k ? share : 0) + (second[i] == k ? 1 - share : 0);
    return smoothing / kMixClasses + (1 - smoothing) * mixed;
  }
};

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("second labels: loss, gradient, hits; then rows of one label again") {
    for (const float smoothing : {0.0f, 0.1f}) {
      CAPTURE(smoothing);
      Bench bench;
      const Shape shape{kMixRows, 1, 1, kMixClasses};
      ClassLossSpec spec;
      const Values z = Normal(static_cast<std::size_t>(shape.numel()), 2, 4);
      spec.logits = bench.Make(shape, kFp32, z);
      spec.label_smoothing = smoothing, spec.mixes = true;
      spec.dlogits = bench.MakeGradient(shape, kFp32);
      const auto op = bench->MakeLoss(spec);
      const MixedRows mixed;
      Pass pass;
      pass.rows = kMixRows, pass.loss_terms = kMixRows;
      op->SetTargets({mixed.labels.data(), {mixed.second.data(), mixed.shares.data()}}, kMixRows);
      op->Forward(pass);
      op->Backward(pass);
      const LossResult result = op->Result();
      const Values gradient = Bench::Get(spec.dlogits.tensor);
      double loss = 0;
      std::int64_t top1 = 0;
      for (std::int64_t row = 0; row < kMixRows; ++row) {
        const float* of = z.data() + row * kMixClasses;
        double sum = 0;
        for (std::int64_t k = 0; k < kMixClasses; ++k) sum += std::exp(static_cast<double>(of[k]));
        std::int64_t best = 0;
        for (std::int64_t k = 0; k < kMixClasses; ++k) {
          if (of[k] > of[best]) best = k;
          const double p = std::exp(static_cast<double>(of[k])) / sum;
          const double target = mixed.Target(row, k, static_cast<double>(smoothing));
          loss -= target * std::log(p);
          CHECK(static_cast<double>(gradient[static_cast<std::size_t>(row * kMixClasses + k)]) ==
                doctest::Approx((p - target) / kMixRows).epsilon(1e-6).scale(1e-3));
        }
        const auto i = static_cast<std::size_t>(row);
        top1 += best == (mixed.shares[i] >= 0.5f ? mixed.labels[i] : mixed.second[i]) ? 1 : 0;
      }
      CHECK(result.loss_sum == doctest::Approx(loss).epsilon(1e-9));
      CHECK(result.top1 == top1);

      op->SetTargets({mixed.labels.data()}, kMixRows);
      op->Forward(pass);
      op->Backward(pass);
      const Values again = Bench::Get(spec.dlogits.tensor);
      ClassLossSpec plain = spec;
      plain.mixes = false, plain.dlogits = bench.MakeGradient(shape, kFp32);
      const auto other = bench->MakeLoss(plain);
      other->SetTargets({mixed.labels.data()}, kMixRows);
      other->Forward(pass);
      other->Backward(pass);
      CHECK(Bench::Get(plain.dlogits.tensor) == again);
      CHECK(other->Result().loss_sum == op->Result().loss_sum);
    }
  }
}

}  // namespace ada::backend::test
