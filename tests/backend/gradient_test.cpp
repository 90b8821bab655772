// Every layer's gradients on the CPU against finite differences of its own forward pass, in fp32.
#include <doctest/doctest.h>

#include "backend/gradient_checks.h"
#include "backend/loss_gradient_checks.h"
#include "backend/naive_matmul.h"

namespace ada::backend::test {
namespace {

// A bench as GradientChecks wants it.
class OpenBench : public Bench {
 public:
  Gradient MakeGradient(const Shape& shape, const NumberFormat& format, float scale = 1,
                        const Values& values = {}) {
    const Gradient g = Bench::MakeGradient(shape, format, scale);
    if (!values.empty()) Set(g.tensor, values);
    return g;
  }
  scaling::LayerScaler* Share(const scaling::LayerScaler& s) { return &scalers_.emplace_back(s); }
  static float Fetched(const float* scale) { return *scale; }

 private:
  std::deque<scaling::LayerScaler> scalers_;
};
constexpr std::size_t kMost = 60;

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("gradients: convolutions and linear layers") {
    for (const MatmulCase& c : AllMatmuls()) {
      CAPTURE(c.name);
      OpenBench bench;
      const MatmulBench p(bench, c, kFp32, 4, 2);
      const Values weights = Times(Bench::Get(p.spec.dy.tensor), 0.25f);
      GradientChecks(bench, kMost).Matmul(*p.MakeOp(bench), p.spec, weights);
    }
  }

  TEST_CASE("gradients: batch norm, alone and with sum and relu") {
    OpenBench bench;
    for (const bool addend : {false, true})
      for (const bool relu : {false, true}) GradientChecks(bench, kMost).BatchNorm(addend, relu);
  }

  TEST_CASE("gradients: relu, pooling, dropout, shortcut, flatten, scale") {
    OpenBench bench;
    GradientChecks(bench, kMost).Layers();
    GradientChecks(bench, kMost).Concat();
  }

  TEST_CASE("gradients: products of tensors, factors by channel, norms of pixels and groups") {
    OpenBench bench;
    GradientChecks(bench, kMost).Multiply();
    GradientChecks(bench, kMost).Parameters();
  }

  TEST_CASE("gradients: addition and the sum of branches") {
    OpenBench bench;
    GradientChecks(bench, kMost).Addition();
  }

  TEST_CASE("gradients: loss, with label smoothing") {
    OpenBench bench;
    for (const float smoothing : {0.0f, 0.2f}) LossGradientChecks(bench, kMost).Loss(smoothing);
  }

  TEST_CASE("gradients: the losses of pixels and of default boxes") {
    OpenBench bench;
    LossGradientChecks(bench, kMost).PixelLoss();
    LossGradientChecks(bench, kMost).MultiboxLoss();
  }
}

}  // namespace ada::backend::test
