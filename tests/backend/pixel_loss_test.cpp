// The loss of pixels against what ChainerCV computed, and against its definition in double:
// weights, ignored pixels, micro-batches, counts, no pixel at all.
#include <doctest/doctest.h>

#include "backend/loss_formulas.h"
#include "backend/recorded_vision.h"

namespace ada::backend::test {
namespace {

using PixelBench = LossBench<PixelLossSpec>;
PixelLossSpec Weighted(const Values& weights) {
  PixelLossSpec spec;
  spec.class_weights = weights;
  return spec;
}

std::int64_t Labeled(const std::vector<std::int32_t>& labels) {
  return std::count_if(labels.begin(), labels.end(), [](std::int32_t label) { return label >= 0; });
}

// Checks one pixel at a time, the others being ignored.
void CheckEachPixel(const VisionCase& c, PixelBench& b, const std::vector<std::int32_t>& labels) {
  const Values want = c.Read("loss"), factors = c.Read("gloss");
  const Values gradients = c.Nhwc("gx");
  Pass pass = MakePass(static_cast<int>(b.spec.logits.shape.n));
  pass.loss_terms = 1;
  const auto classes = static_cast<std::size_t>(b.spec.logits.shape.c);
  for (std::size_t i = 0; i < labels.size(); ++i) {
    std::vector<std::int32_t> one(labels.size(), -1);
    one[i] = labels[i];
    const LossResult result = b.Run(one, pass);
    CHECK(result.loss_sum == doctest::Approx(want[i]).epsilon(1e-6));
    Values got = Bench::Get(b.spec.dlogits.tensor), expected(got.size(), 0);
    for (std::size_t k = 0; k < classes; ++k) {
      got[i * classes + k] *= factors[i];
      expected[i * classes + k] = gradients[i * classes + k];
    }
    CheckNear("gx", got, expected, 1e-5);
  }
}

void CheckRecorded(const VisionCase& c) {
  Bench bench;
  const Shape shape = c.ShapeOf("x");
  const bool weighted = c.Number("class_weight") == 1;
  PixelBench b(bench, shape, kFp32, c.Nhwc("x"), Weighted(weighted ? c.Read("weight") : Values()));
  const std::vector<std::int32_t> labels = c.Integers("t");
  if (c.row.at("reduce") != "mean") return CheckEachPixel(c, b, labels);
  Pass pass = MakePass(static_cast<int>(shape.n));
  pass.loss_terms = c.Number("normalize") == 1 ? Labeled(labels) : shape.n;
  const LossResult result = b.Run(labels, pass);
  const double terms = std::max<double>(1, static_cast<double>(pass.loss_terms));
  CHECK(result.loss_sum / terms == doctest::Approx(c.Number("loss")).epsilon(1e-6).scale(1e-3));
  CHECK(result.location_sum == 0);
  CheckNear("gx", Bench::Get(b.spec.dlogits.tensor), c.Nhwc("gx"), 1e-5);
}

struct NaivePixels {
  double loss = 0;
  std::int64_t hits = 0;
  Sums gradient;
};
NaivePixels Naive(const PixelLossSpec& spec, const std::vector<std::int32_t>& labels,
                  const Pass& pass) {
  const auto c = static_cast<std::size_t>(spec.logits.shape.c);
  const Values z = Bench::Get(spec.logits);
  NaivePixels truth;
  for (std::size_t row = 0; row < labels.size(); ++row) {
    const std::int32_t label = labels[row];
    const float* of = z.data() + row * c;
    double sum = 0;
    const float highest = *std::max_element(of, of + c);
    for (std::size_t k = 0; k < c; ++k)
      sum += std::exp(static_cast<double>(of[k]) - static_cast<double>(highest));
    const double weight =
        label < 0 ? 0
        : spec.class_weights.empty()
            ? 1
            : static_cast<double>(spec.class_weights[static_cast<std::size_t>(label)]);
    for (std::size_t k = 0; k < c; ++k) {
      const double p = std::exp(static_cast<double>(of[k]) - static_cast<double>(highest)) / sum;
      const double target = static_cast<std::int32_t>(k) == label ? 1 : 0;
      Exact g{p - target, p + target};
      g *= weight * static_cast<double>(pass.loss_scale) / static_cast<double>(pass.loss_terms);
      g.magnitude += 0x1p-149 / kSumError * static_cast<double>(pass.loss_scale);
      if (label < 0) g = {};
      truth.gradient.push_back(g);
      if (target == 1) truth.loss -= weight * std::log(p);
    }
    if (label >= 0) truth.hits += std::max_element(of, of + c) - of == label ? 1 : 0;
  }
  return truth;
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("the loss of pixels: as recorded") {
    ForRecorded("ops", "softmax_cross_entropy", CheckRecorded);
  }

  TEST_CASE("the loss of pixels: formats, scale, tails of rows and of batches") {
    for (const Kind& kind : MainKinds())
      for (const std::int64_t classes : {2, 11, 150}) {
        CAPTURE(kind.name);
        CAPTURE(classes);
        Bench bench;
        const Shape shape{4, 7, 9, classes};
        Values weights;
        for (std::int64_t k = 0; k < classes; ++k)
          weights.push_back(k % 3 == 0 ? 0.5f : k % 3 == 1 ? 2.0f : 0.0f);
        PixelBench b(bench, shape, kind.format,
                     Normal(static_cast<std::size_t>(shape.numel()), 3, 1), Weighted(weights));
        std::vector<std::int32_t> labels;
        for (int i = 0; i < 3 * 7 * 9; ++i)
          labels.push_back(i % 5 == 0 ? -1 : static_cast<std::int32_t>(i * 7 % classes));
        Pass pass = MakePass(3);
        pass.loss_terms = 1000, pass.loss_scale = 1024;
        const LossResult result = b.Run(labels, pass);
        const NaivePixels truth = Naive(b.spec, labels, pass);
        CHECK(result.loss_sum == doctest::Approx(truth.loss).epsilon(1e-9));
        CHECK(result.top1 == truth.hits);
        CHECK(result.top5 >= result.top1);
        CheckTensor(b.spec.dlogits.tensor, truth.gradient);
        CHECK(*b.spec.dlogits.scale == 1024);
        CHECK(b.spec.dlogits.stats->numel == 3 * shape.per_image());
        pass.accumulate = true;
        CHECK(b.Run(labels, pass).loss_sum == doctest::Approx(2 * truth.loss).epsilon(1e-9));
      }
  }

  TEST_CASE("the loss of pixels: none labelled gives zeros, whatever the logits are") {
    Bench bench;
    const Shape shape{2, 3, 3, 4};
    Values logits = Normal(72, 1, 1);
    logits[5] = std::nanf("");
    PixelBench b(bench, shape, kFp16, logits, {});
    Pass pass = MakePass(2);
    pass.loss_terms = 0;
    const LossResult result = b.Run(std::vector<std::int32_t>(18, -1), pass);
    CHECK(result.loss_sum == 0);
    CheckEqual(b.spec.dlogits.tensor, Values(72, 0));
    CHECK(b.spec.dlogits.stats->nan == 0);
    std::vector<std::int32_t> wrong(18, 0);
    wrong[17] = 4;
    CHECK_THROWS(b.op->SetTargets({wrong.data()}, 2));
  }

  // As torch.nn.functional.cross_entropy gives, whose loss is NaN as well.
  TEST_CASE("the loss of pixels: a class that weighs nothing hides no NaN") {
    Bench bench;
    PixelBench b(bench, {1, 1, 3, 2}, kFp16, {std::nanf(""), 1, std::nanf(""), 1, 1, 2},
                 Weighted({0, 1}));
    Pass pass = MakePass(1);
    pass.loss_terms = 2;
    CHECK(std::isnan(b.Run({0, -1, 1}, pass).loss_sum));
    const Values gradient = Bench::Get(b.spec.dlogits.tensor);
    CHECK(std::isnan(gradient[0]));
    CHECK(std::isnan(gradient[1]));
    CHECK(gradient[2] == 0);
    CHECK(gradient[3] == 0);
    CHECK(gradient[4] > 0);
    CHECK(b.spec.dlogits.stats->nan == 2);
  }

  TEST_CASE("the loss of pixels: the authors' rounding before the scale") {
    Bench bench;
    for (const bool reference : {false, true}) {
      PixelLossSpec spec;
      spec.logits = bench.Make({1, 1, 1, 2}, kFp16, {0, 18});
      spec.dlogits = bench.MakeGradient({1, 1, 1, 2}, kFp16), spec.reference = reference;
      const auto op = bench->MakeLoss(spec);
      const std::int32_t label = 1;
      op->SetTargets({&label}, 1);
      Pass pass = MakePass(1);
      pass.loss_scale = 1024;
      op->Forward(pass);
      op->Backward(pass);
      CHECK((Bench::Get(spec.dlogits.tensor)[0] == 0) == reference);  // 1.5e-8 underflows
    }
  }
}

}  // namespace ada::backend::test
