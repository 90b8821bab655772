// Every layer's gradients against finite differences of its own forward pass, in fp32: a truth that
// is not the CPU backend's. Step and bound: backend/finite_differences.h, for the reasons there.
#include <doctest/doctest.h>

#include "backend/gradient_checks.h"
#include "backend/loss_gradient_checks.h"
#include "cuda/matmul_lab.h"
#include "cuda/on_both.h"

namespace ada::backend::test {
namespace {

constexpr std::size_t kMost = 24;  // each costs two downloads as well

}  // namespace

TEST_SUITE(ADA_SUITE) {
  TEST_CASE("gradients: convolutions and linear layers") {
    Settings settings;
    settings.format = kFp32;
    for (const MatmulCase& c : AllMatmuls()) {
      CAPTURE(c.name);
      Lab lab(MakeBackendUnderTest());
      const Layer layer(lab, c, settings);
      const Values weights = Times(lab.Get(layer.spec.dy.tensor), 1 / settings.scale);
      GradientChecks(lab, kMost).Matmul(*layer.op, layer.spec, weights);
    }
  }

  TEST_CASE("gradients: batch norm, alone and with sum and relu") {
    Lab lab(MakeBackendUnderTest());
    for (const bool addend : {false, true})
      for (const bool relu : {false, true}) GradientChecks(lab, kMost).BatchNorm(addend, relu);
  }

  TEST_CASE("gradients: relu, pooling, dropout, shortcut, flatten, scale") {
    Lab lab(MakeBackendUnderTest());
    GradientChecks(lab, kMost).Layers();
    GradientChecks(lab, kMost).Concat();
  }

  TEST_CASE("gradients: products of tensors, factors by channel, norms of pixels and groups") {
    Lab lab(MakeBackendUnderTest());
    GradientChecks(lab, kMost).Multiply();
    GradientChecks(lab, kMost).Parameters();
  }

  TEST_CASE("gradients: addition and the sum of branches") {
    Lab lab(MakeBackendUnderTest());
    GradientChecks(lab, kMost).Addition();
  }

  TEST_CASE("gradients: loss, with label smoothing") {
    Lab lab(MakeBackendUnderTest());
    for (const float smoothing : {0.0f, 0.2f}) LossGradientChecks(lab, kMost).Loss(smoothing);
  }

  TEST_CASE("gradients: the losses of pixels and of default boxes") {
    Lab lab(MakeBackendUnderTest());
    LossGradientChecks(lab, kMost).PixelLoss();
    LossGradientChecks(lab, kMost).MultiboxLoss();
  }
}

}  // namespace ada::backend::test
