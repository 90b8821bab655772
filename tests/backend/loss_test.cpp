// Softmax cross-entropy against its definition in double: loss, hits, gradient, label smoothing.
#include <doctest/doctest.h>

#include "backend/naive_count.h"
#include "backend/op_bench.h"

namespace ada::backend::test {
namespace {

using ClassBench = LossBench<ClassLossSpec>;
ClassLossSpec Smoothed(float smoothing) {
  ClassLossSpec spec;
  spec.label_smoothing = smoothing;
  return spec;
}

std::vector<std::int32_t> Labels(int rows, std::int64_t classes) {
  std::vector<std::int32_t> labels;
  for (int i = 0; i < rows; ++i) labels.push_back(static_cast<std::int32_t>(i * 7 % classes));
  return labels;
}

struct NaiveLoss {
  double loss = 0;
  Sums gradient;  // times init_scale, over loss_terms
};
NaiveLoss Naive(const ClassLossSpec& spec, const std::vector<std::int32_t>& labels,
                const Pass& pass) {
  const auto c = static_cast<std::size_t>(spec.logits.shape.c);
  const auto s = static_cast<double>(spec.label_smoothing);
  const Values z = Bench::Get(spec.logits);
  NaiveLoss truth;
  for (std::size_t row = 0; row < static_cast<std::size_t>(pass.rows); ++row) {
    double highest = static_cast<double>(z[row * c]), sum = 0;
    for (std::size_t k = 0; k < c; ++k)
      highest = std::max(highest, static_cast<double>(z[row * c + k]));
    for (std::size_t k = 0; k < c; ++k)
      sum += std::exp(static_cast<double>(z[row * c + k]) - highest);
    for (std::size_t k = 0; k < c; ++k) {
      const bool hit = k == static_cast<std::size_t>(labels[row]);
      const double target = (hit ? 1 - s : 0) + s / static_cast<double>(c);
      const double log_p = static_cast<double>(z[row * c + k]) - highest - std::log(sum);
      if (target > 0) truth.loss -= target * log_p;
      const double p = std::exp(log_p);
      Exact g{p - target, p + target};
      g *= static_cast<double>(pass.loss_scale) / static_cast<double>(pass.loss_terms);
      // In fp32 before the scale: a spacing of its subnormals may go.
      g.magnitude += 0x1p-149 / kSumError * static_cast<double>(pass.loss_scale);
      truth.gradient.push_back(g);
    }
  }
  return truth;
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("loss: value and gradient, with smoothing, scale, tails and micro-batches") {
    for (const Kind& kind : MainKinds())
      for (const std::int64_t classes : {2, 10, 1000})
        for (const float smoothing : {0.0f, 0.1f, 1.0f})
          for (const double sigma : {1.0, 300.0}) {
            CAPTURE(kind.name);
            CAPTURE(classes);
            CAPTURE(smoothing);
            CAPTURE(sigma);
            Bench bench;
            const Shape shape{37, 1, 1, classes};
            ClassBench b(bench, shape, kind.format,
                         Normal(static_cast<std::size_t>(shape.numel()), sigma, 1),
                         Smoothed(smoothing));
            Pass pass = MakePass(29);
            pass.loss_terms = 128, pass.loss_scale = 1024;
            const std::vector<std::int32_t> labels = Labels(29, classes);
            const LossResult result = b.Run(labels, pass);
            const NaiveLoss truth = Naive(b.spec, labels, pass);
            CHECK(result.loss_sum == doctest::Approx(truth.loss).epsilon(1e-12));
            CheckTensor(b.spec.dlogits.tensor, truth.gradient);
            CHECK(*b.spec.dlogits.scale == 1024);
            CHECK(b.spec.dlogits.stats->numel == 29 * classes);
          }
  }

  TEST_CASE("loss: the scale acts before the rounding, and both ends are counted") {
    Bench bench;
    const Shape shape{4, 1, 1, 3};
    ClassBench b(bench, shape, kFp16, {0, -12, -20, 0, -12, -20, 0, -12, -20, 0, -12, -20}, {});
    Pass pass = MakePass(4);
    b.Run({0, 0, 0, 0}, pass);  // p = 6.14e-6 and 2.06e-9, over 4
    CHECK(b.spec.dlogits.stats->underflow == 4);
    CHECK(Bench::Get(b.spec.dlogits.tensor)[2] == 0);
    pass.loss_scale = 0x1p10f;
    b.Run({0, 0, 0, 0}, pass);
    CHECK(b.spec.dlogits.stats->underflow == 0);
    pass.loss_scale = 0x1p20f;
    b.Run({1, 1, 1, 1}, pass);  // about a quarter of 2^20, twice a row
    CHECK(b.spec.dlogits.stats->overflow == 8);
    CHECK(std::isinf(Bench::Get(b.spec.dlogits.tensor)[0]));
    pass.loss_scale = 1;
    CHECK_NOTHROW(b.Run({2, 0, 1, 0}, pass));
    CHECK(b.spec.dlogits.stats->overflow == 0);
  }

  TEST_CASE("loss: hits; among equal logits the lower class comes first; a NaN never hits") {
    struct Case {
      Values logits;  // of 7 classes
      std::int32_t label;
      int top1, top5;
    };
    const float nan = std::nanf(""), inf = std::numeric_limits<float>::infinity();
    const Case cases[] = {{{1, 2, 3, 4, 5, 6, 7}, 6, 1, 1},  {{1, 2, 3, 4, 5, 6, 7}, 5, 0, 1},
                          {{1, 2, 3, 4, 5, 6, 7}, 2, 0, 1},  {{1, 2, 3, 4, 5, 6, 7}, 1, 0, 0},
                          {{0, 0, 0, 0, 0, 0, 0}, 0, 1, 1},  {{0, 0, 0, 0, 0, 0, 0}, 1, 0, 1},
                          {{0, 0, 0, 0, 0, 0, 0}, 4, 0, 1},  {{0, 0, 0, 0, 0, 0, 0}, 5, 0, 0},
                          {{1, 3, 3, 2, 0, 0, 0}, 2, 0, 1},  {{1, inf, 3, 2, 0, 0, 0}, 1, 1, 1},
                          {{nan, 1, 1, 1, 1, 1, 1}, 0, 0, 0}};
    for (const Case& c : cases) {
      CAPTURE(c.label);
      CAPTURE(c.logits[1]);
      Bench bench;
      ClassBench b(bench, {1, 1, 1, 7}, kFp32, c.logits, {});
      const LossResult result = b.Run({c.label}, MakePass(1));
      CHECK(result.top1 == c.top1);
      CHECK(result.top5 == c.top5);
    }
  }

  TEST_CASE("loss: with fewer than six classes every top-5 hits") {
    Bench bench;
    ClassBench b(bench, {6, 1, 1, 3}, kFp16, Normal(18, 1, 1), {});
    CHECK(b.Run(Labels(6, 3), MakePass(6)).top5 == 6);
  }

  TEST_CASE("loss: logits that are not finite give a loss that is not; the next call is clean") {
    Bench bench;
    ClassBench b(bench, {2, 1, 1, 4}, kFp16, {1, 2, 3, std::nanf(""), 1, 2, 3, 4}, {});
    CHECK(std::isnan(b.Run({0, 1}, MakePass(2)).loss_sum));
    CHECK(b.spec.dlogits.stats->nan == 4);
    Bench::Set(b.spec.logits, {1, 2, 3, 4, 1, 2, 3, 4});
    CHECK(std::isfinite(b.Run({0, 1}, MakePass(2)).loss_sum));
  }

  TEST_CASE("loss: the result goes on over calls that accumulate, each with its own sum") {
    Bench bench;
    ClassLossSpec spec;
    const std::int32_t labels[] = {1, 1, 0};
    spec.logits = bench.Make({3, 1, 1, 2}, kFp32, {0, 1, 1, 0, 0, 0});
    const auto op = bench->MakeLoss(spec);
    Pass pass = MakePass(3);
    op->SetTargets({labels}, 3);
    op->Forward(pass);
    const LossResult once = op->Result();
    pass.accumulate = true;
    op->Forward(pass);
    op->Forward(pass);
    CHECK(op->Result().loss_sum == once.loss_sum + once.loss_sum + once.loss_sum);
    CHECK(op->Result().top1 == 3 * once.top1);
    CHECK(op->Result().top5 == 9);
    pass.accumulate = false;
    op->Forward(pass);
    CHECK(op->Result().loss_sum == once.loss_sum);
  }

  TEST_CASE("loss: evaluation without a gradient; labels must be classes") {
    Bench bench;
    ClassLossSpec spec;
    spec.logits = bench.Make({3, 1, 1, 2}, kFp32, {0, 1, 1, 0, 0, 0});
    const auto op = bench->MakeLoss(spec);
    const std::int32_t labels[] = {1, 1, 0}, wrong[] = {0, 2, 1}, negative[] = {0, -1, 1};
    op->SetTargets({labels}, 3);
    op->Forward(MakePass(3));
    CHECK(op->Result().top1 == 2);
    CHECK(op->Result().loss_sum ==
          doctest::Approx(0.31326168751822286 + 1.3132616875182228 + std::log(2.0)));
    CHECK_THROWS(op->SetTargets({wrong}, 3));
    CHECK_THROWS(op->SetTargets({negative}, 3));
  }
}

}  // namespace ada::backend::test
