// The loss of default boxes against what ChainerCV computed, Huber's loss of any width, and what no
// recording has: ties among many boxes, ignored boxes, micro-batches, formats, boxes out of bounds.
#include <doctest/doctest.h>

#include "backend/loss_formulas.h"
#include "backend/recorded_vision.h"

namespace ada::backend::test {
namespace {

struct BoxBench {
  BoxBench(Bench& bench, std::int64_t n, std::int64_t boxes, std::int64_t classes,
           const NumberFormat& format, const Values& locations, const Values& scores) {
    const Shape four{n, 1, boxes, 4}, all{n, 1, boxes, classes};
    spec.locations = bench.Make(four, format, locations);
    spec.scores = bench.Make(all, format, scores);
    spec.dlocations = bench.MakeGradient(four, format);
    spec.dscores = bench.MakeGradient(all, format);
  }
  LossResult Run(Bench& bench, const std::vector<std::int32_t>& labels, const Values& targets,
                 const Pass& pass) {
    if (op == nullptr) op = bench->MakeLoss(spec);
    Targets all{labels.data()};
    all.locations = targets.data();
    op->SetTargets(all, pass.rows);
    op->Forward(pass);
    op->Backward(pass);
    return op->Result();
  }
  std::vector<bool> UsedRows() const {
    const Values g = Bench::Get(spec.dscores.tensor);
    const auto classes = static_cast<std::size_t>(spec.scores.shape.c);
    std::vector<bool> used(g.size() / classes);
    for (std::size_t i = 0; i < g.size(); ++i)
      if (g[i] != 0) used[i / classes] = true;
    return used;
  }
  MultiboxLossSpec spec;
  std::unique_ptr<LossOp> op;
};

std::int64_t Positives(const std::vector<std::int32_t>& labels) {
  return std::count_if(labels.begin(), labels.end(), [](std::int32_t label) { return label > 0; });
}

void CheckRecorded(const VisionCase& c) {
  Bench bench;
  const auto n = static_cast<std::int64_t>(c.Number("batch"));
  const auto boxes = static_cast<std::int64_t>(c.Number("boxes"));
  const auto classes = static_cast<std::int64_t>(c.Number("classes"));
  BoxBench b(bench, n, boxes, classes, kFp32, c.Read("mb_locs"), c.Read("mb_confs"));
  b.spec.negatives = c.Number("k");
  b.spec.reads_background = true;
  const std::vector<std::int32_t> labels = c.Integers("gt_mb_labels");
  Pass pass = MakePass(static_cast<int>(n));
  pass.loss_terms = Positives(labels);
  CHECK(pass.loss_terms == c.Number("positives"));
  const LossResult result = b.Run(bench, labels, c.Read("gt_mb_locs"), pass);
  const double terms = std::max<double>(1, static_cast<double>(pass.loss_terms));
  const double bound = c.name == "large_confs" ? 1e-5 : 1e-6;
  if (c.row.at("loc_loss") == "nan") {
    CHECK(std::isnan(result.loss_sum));
  } else if (pass.loss_terms > 0) {
    CHECK(result.location_sum / terms == doctest::Approx(c.Number("loc_loss")).epsilon(bound));
    CHECK((result.loss_sum - result.location_sum) / terms ==
          doctest::Approx(c.Number("conf_loss")).epsilon(bound));
  }
  CheckNear("locations", Bench::Get(b.spec.dlocations.tensor), c.Read("grad_mb_locs"), bound);
  CheckNear("scores", Bench::Get(b.spec.dscores.tensor), c.Read("grad_mb_confs"), bound);
  const std::vector<bool> used = b.UsedRows();
  CHECK(std::count(used.begin(), used.end(), true) == c.Number("rows_with_conf_gradient"));
  if (c.row.at("loc_loss") != "nan") return;
  // Training does not read the targets of background boxes.
  BoxBench right(bench, n, boxes, classes, kFp32, c.Read("mb_locs"), c.Read("mb_confs"));
  right.spec.negatives = c.Number("k");
  const LossResult finite = right.Run(bench, labels, c.Read("gt_mb_locs"), pass);
  CHECK(std::isfinite(finite.location_sum));
  CHECK(finite.location_sum > 0);
  CHECK((finite.loss_sum - finite.location_sum) / terms ==
        doctest::Approx(c.Number("conf_loss")).epsilon(bound));
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("the loss of default boxes: as recorded") {
    ForRecorded("ssd", "multibox_loss", CheckRecorded);
  }

  TEST_CASE("Huber's loss: as recorded") {
    ForRecorded("ops", "huber", [](const VisionCase& c) {
      const double width = c.Number("delta");
      const Values x = c.Read("x"), t = c.Read("t"), loss = c.Read("loss"), gx = c.Read("gx"),
                   gloss = c.Read("gloss");
      const std::size_t columns = x.size() / gloss.size();
      Values got(loss.size(), 0), slopes;
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double d = LocationDifference(x[i], t[i]);
        got[i / columns] += static_cast<float>(HuberLoss(d, width));
        slopes.push_back(static_cast<float>(HuberSlope(d, width)) * gloss[i / columns]);
      }
      CheckNear("loss", got, loss, 1e-6);
      CheckNear("gx", slopes, gx, 1e-6);
    });
  }

  TEST_CASE(
      "the loss of default boxes: of equal losses the first boxes are chosen, whatever lies "
      "beside them") {
    for (const std::int64_t boxes : {7, 1000, 8732}) {
      CAPTURE(boxes);
      Bench bench;
      const auto count = static_cast<std::size_t>(2 * boxes);
      // All the same but box 3, which is harder; the first image has one positive box, the second
      // two and an ignored one.
      Values scores(count * 3, 0), locations(count * 4, 0.5f), targets(count * 4, 0);
      const auto second = static_cast<std::size_t>(boxes);
      scores[3 * 3 + 1] = 2, scores[(second + 3) * 3 + 2] = 3;
      std::vector<std::int32_t> labels(count, 0);
      labels[5] = 2, labels[second + 1] = 1, labels[second + 5] = 1, labels[second] = -1;
      BoxBench b(bench, 2, boxes, 3, kFp32, locations, scores);
      b.spec.negatives = 1.5;
      Pass pass = MakePass(2);
      pass.loss_terms = 3;
      const LossResult result = b.Run(bench, labels, targets, pass);
      const std::vector<bool> used = b.UsedRows();
      std::vector<std::size_t> got;
      for (std::size_t i = 0; i < count; ++i)
        if (used[i]) got.push_back(i);
      // ceil(1.5) = 2 and 3 negatives.
      CHECK(got == std::vector<std::size_t>{0, 3, 5, second + 1, second + 2, second + 3, second + 4,
                                            second + 5});
      CHECK(result.location_sum == doctest::Approx(3 * 4 * 0.125));
      CHECK(result.top1 == 0);
      CHECK(result.top5 == 3);
      // Once more: what was chosen is not what is given.
      b.Run(bench, labels, targets, pass);
      CHECK(b.UsedRows() == used);
    }
  }

  TEST_CASE("the loss of default boxes: formats, scale, a batch that is not full") {
    for (const Kind& kind : MainKinds()) {
      CAPTURE(kind.name);
      Bench bench;
      const std::int64_t boxes = 100, classes = 6;
      BoxBench b(bench, 3, boxes, classes, kind.format, Normal(1200, 1, 1), Normal(1800, 2, 2));
      std::vector<std::int32_t> labels;
      for (int i = 0; i < 200; ++i) labels.push_back(i % 10 == 0 ? 1 + i / 10 % 5 : 0);
      const Values targets = Normal(800, 1, 3);
      Pass pass = MakePass(2);
      pass.loss_terms = 64, pass.loss_scale = 256;
      b.Run(bench, labels, targets, pass);
      const Values locations = Bench::Get(b.spec.locations);
      Sums want;
      for (std::size_t i = 0; i < 800; ++i) {
        const double d = static_cast<double>(locations[i]) - static_cast<double>(targets[i]);
        const double g = labels[i / 4] > 0 ? std::clamp(d, -1.0, 1.0) * 256 / 64 : 0;
        want.push_back({g, std::fabs(g)});
      }
      CheckTensor(b.spec.dlocations.tensor, want);
      CHECK(*b.spec.dlocations.scale == 256);
      CHECK(*b.spec.dscores.scale == 256);
      CHECK(b.spec.dlocations.stats->numel == 800);
      CHECK(b.spec.dscores.stats->numel == 1200);
      const std::vector<bool> used = b.UsedRows();
      CHECK(std::count(used.begin(), used.end(), true) == 4 * 20);
    }
  }
}

}  // namespace ada::backend::test
