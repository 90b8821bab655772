// Softmax cross-entropy against the CPU's: the gradient bit for bit, the loss up to the order of
// its sum in double; hits, micro-batches, and what is read from the pass in backend memory.
#include <doctest/doctest.h>

#include "cuda/on_both.h"

namespace ada::backend::test {
namespace {

std::vector<std::int32_t> Labels(int rows, std::int64_t classes) {
  std::vector<std::int32_t> labels;
  for (int i = 0; i < rows; ++i) labels.push_back(static_cast<std::int32_t>(i * 7 % classes));
  return labels;
}
ClassLossSpec MakeSpec(Lab& lab, const Shape& shape, const NumberFormat& format,
                       const Values& logits, float smoothing) {
  ClassLossSpec spec;
  spec.logits = lab.Make(shape, format, logits);
  spec.label_smoothing = smoothing;
  spec.dlogits = lab.MakeGradient(shape, format);
  return spec;
}
Pass PassOf(int rows, float scale) {
  Pass pass;
  pass.rows = rows, pass.loss_terms = 128, pass.loss_scale = scale, pass.count = true;
  return pass;
}
void Write(const LossResult& result, Findings& findings) {
  findings.Numbers("loss", {result.loss_sum}, 1e-13);
  findings.Numbers("hits", {static_cast<double>(result.top1), static_cast<double>(result.top5)});
}

struct Logits {
  NumberFormat format;
  std::int64_t classes;
  float smoothing;
  double sigma;
};
std::vector<Logits> AllLogits() {
  std::vector<Logits> all;
  for (const Kind& kind : MainKinds())
    for (const std::int64_t classes : {1, 2, 10, 63, 64, 65, 1000})
      for (const float smoothing : {0.0f, 0.1f, 1.0f})
        for (const double sigma : {1.0, 300.0})
          all.push_back({kind.format, classes, smoothing, sigma});
  return all;
}

}  // namespace

TEST_SUITE(ADA_SUITE) {
  TEST_CASE("loss: value and gradient, with smoothing, scale and tails") {
    for (const Logits& c : AllLogits())
      for (const bool reference : {false, true}) {
        CAPTURE(FormatName(c.format));
        CAPTURE(c.classes);
        CAPTURE(c.smoothing);
        CAPTURE(c.sigma);
        OnBoth([&](Lab& lab, Findings& findings) {
          const Shape shape{37, 1, 1, c.classes};
          const Values z = Normal(static_cast<std::size_t>(shape.numel()), c.sigma, 1);
          ClassLossSpec spec = MakeSpec(lab, shape, c.format, z, c.smoothing);
          spec.reference = reference;
          const auto op = lab->MakeLoss(spec);
          for (const int rows : {37, 29}) {
            op->SetTargets({Labels(rows, c.classes).data()}, rows);
            op->Forward(PassOf(rows, 1024));
            op->Backward(PassOf(rows, 1024));
            Write(op->Result(), findings);
            findings.Add("dlogits", lab, spec.dlogits);
          }
        });
      }
  }

  TEST_CASE("loss: more rows than threads") {
    OnBoth([&](Lab& lab, Findings& findings) {
      const Shape shape{1000, 1, 1, 10};
      ClassLossSpec spec = MakeSpec(lab, shape, kFp16, Normal(10000, 2, 1), 0);
      const auto op = lab->MakeLoss(spec);
      for (const int rows : {1000, 129, 1}) {
        op->SetTargets({Labels(rows, 10).data()}, rows);
        op->Forward(PassOf(rows, 1));
        op->Backward(PassOf(rows, 1));
        Write(op->Result(), findings);
        findings.Add("dlogits", lab, spec.dlogits);
      }
    });
  }

  TEST_CASE("loss: the result is of all micro-batches since the last first one") {
    OnBoth([&](Lab& lab, Findings& findings) {
      ClassLossSpec spec = MakeSpec(lab, {8, 1, 1, 5}, kFp16, Normal(40, 1, 1), 0);
      const auto op = lab->MakeLoss(spec);
      for (int step = 0; step < 2; ++step) {
        for (int part = 0; part < 3; ++part) {
          Pass pass = PassOf(8 - part, 16);
          pass.accumulate = part > 0;
          lab.Set(spec.logits, Normal(40, 1, static_cast<std::uint64_t>(10 * step + part)));
          op->SetTargets({Labels(pass.rows, 5).data()}, pass.rows);
          op->Forward(pass);
          op->Backward(pass);
        }
        Write(op->Result(), findings);
        CHECK(op->Result().top5 == 8 + 7 + 6);
      }
    });
  }

  TEST_CASE("loss: hits; among equal logits the lower class comes first; a NaN never hits") {
    const float nan = std::nanf(""), inf = std::numeric_limits<float>::infinity();
    struct Case {
      Values logits;  // of 7 classes
      std::int32_t label;
      int top1, top5;
    };
    const Case cases[] = {{{1, 2, 3, 4, 5, 6, 7}, 6, 1, 1},  {{1, 2, 3, 4, 5, 6, 7}, 5, 0, 1},
                          {{1, 2, 3, 4, 5, 6, 7}, 2, 0, 1},  {{1, 2, 3, 4, 5, 6, 7}, 1, 0, 0},
                          {{0, 0, 0, 0, 0, 0, 0}, 0, 1, 1},  {{0, 0, 0, 0, 0, 0, 0}, 1, 0, 1},
                          {{0, 0, 0, 0, 0, 0, 0}, 4, 0, 1},  {{0, 0, 0, 0, 0, 0, 0}, 5, 0, 0},
                          {{1, 3, 3, 2, 0, 0, 0}, 2, 0, 1},  {{1, inf, 3, 2, 0, 0, 0}, 1, 1, 1},
                          {{nan, 1, 1, 1, 1, 1, 1}, 0, 0, 0}};
    for (const Case& c : cases) {
      Lab lab(MakeBackendUnderTest());
      const auto op = lab->MakeLoss(MakeSpec(lab, {1, 1, 1, 7}, kFp32, c.logits, 0));
      op->SetTargets({&c.label}, 1);
      op->Forward(PassOf(1, 1));
      CHECK(op->Result().top1 == c.top1);
      CHECK(op->Result().top5 == c.top5);
    }
  }

  TEST_CASE("loss: logits that are not finite give a loss that is not; the next call is clean") {
    const float nan = std::nanf(""), inf = std::numeric_limits<float>::infinity();
    for (const float bad : {nan, inf, -inf})
      OnBoth([&](Lab& lab, Findings& findings) {
        ClassLossSpec spec = MakeSpec(lab, {2, 1, 1, 4}, kFp16, {1, 2, 3, bad, 1, 2, 3, 4}, 0);
        const auto op = lab->MakeLoss(spec);
        for (int call = 0; call < 2; ++call) {
          op->SetTargets({Labels(2, 4).data()}, 2);
          op->Forward(PassOf(2, 1));
          op->Backward(PassOf(2, 1));
          CHECK((call == 0 && bad != -inf) != std::isfinite(op->Result().loss_sum));
          Write(op->Result(), findings);
          findings.Add("dlogits", lab, spec.dlogits);
          lab.Set(spec.logits, {1, 2, 3, 4, 1, 2, 3, 4});
        }
      });
  }

  TEST_CASE("loss: evaluation without a gradient; labels must be classes") {
    Lab lab(MakeBackendUnderTest());
    ClassLossSpec spec;
    spec.logits = lab.Make({3, 1, 1, 2}, kFp32, {0, 1, 1, 0, 0, 0});
    const auto op = lab->MakeLoss(spec);
    const std::int32_t labels[] = {1, 1, 0}, wrong[] = {0, 2, 1}, negative[] = {0, -1, 1};
    op->SetTargets({labels}, 3);
    op->Forward(PassOf(3, 1));
    CHECK(op->Result().top1 == 2);
    CHECK(op->Result().loss_sum ==
          doctest::Approx(0.31326168751822286 + 1.3132616875182228 + std::log(2.0)));
    CHECK_THROWS(op->SetTargets({wrong}, 3));
    CHECK_THROWS(op->SetTargets({negative}, 3));
  }

  TEST_CASE("loss: replayed with another scale, other rows of the loss and other labels") {
    OnBoth([&](Lab& lab, Findings& findings) {
      ClassLossSpec spec = MakeSpec(lab, {9, 1, 1, 10}, kFp16, Normal(90, 1, 1), 0.1f);
      const auto op = lab->MakeLoss(spec);
      for (int step = 0; step < 5; ++step) {
        Pass pass = PassOf(9, std::exp2(static_cast<float>(3 * step)));
        pass.loss_terms = 9 + step;
        lab.Set(spec.logits, Normal(90, 1, static_cast<std::uint64_t>(step)));
        op->SetTargets({Labels(9, step + 2).data()}, 9);
        lab->Run(1, pass, [&] {
          op->Forward(pass);
          op->Backward(pass);
        });
        Write(op->Result(), findings);
        findings.Add("dlogits", lab, spec.dlogits);
      }
    });
  }
}

}  // namespace ada::backend::test
