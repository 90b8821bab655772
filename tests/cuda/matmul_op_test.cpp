// Convolution and linear ops on values whose sums are exact in fp32 in any order: what the CUDA
// backend's kernels make of them is what the CPU's make of them, bit for bit.
#include <doctest/doctest.h>

#include <vector>

#include "cuda/matmul_lab.h"

namespace ada::backend::test {
namespace {

using scaling::LayerMethod;

// `passes` steps over all images.
void CheckSteps(const MatmulCase& c, const Settings& settings, int passes = 1) {
  CAPTURE(c.name);
  CAPTURE(FormatName(settings.format));
  CAPTURE(static_cast<int>(settings.method));
  OnBoth([&](Lab& lab, Findings& findings) {
    const Layer layer(lab, c, settings);
    for (int i = 0; i < passes; ++i) layer.Step(PassOf(c.x.n), findings);
  });
}
MatmulCase Plain() {
  const std::array<int, 2> one = {1, 1}, three = {3, 3};
  return {"3x3", {4, 6, 6, 16}, 16, three, one, one, one, 1, true};
}
// A library multiplies the zeros of padding as well, and then dw is NaN where dy is infinite; the
// CPU leaves them out.
MatmulCase Unpadded() {
  MatmulCase c = Plain();
  c.padding = {0, 0};
  return c;
}

}  // namespace

TEST_SUITE(ADA_SUITE) {
  TEST_CASE("product op: every kind of layer, in native and emulated formats") {
    for (const MatmulCase& c : AllMatmuls())
      for (const NumberFormat& format : {kFp16, kBf16, kFp32, kFp8E4M3}) {
        Settings settings;
        settings.format = format;
        CheckSteps(c, settings);
      }
  }

  TEST_CASE("product op: 3 input channels do not keep 16-bit operands from a weight gradient") {
    OnBoth([&](Lab& lab, Findings& findings) {
      Settings settings;
      const Layer layer(lab, {"conv1", {5, 7, 6, 3}, 16, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1, false},
                        settings);
      for (const int rows : {5, 2}) layer.Step(PassOf(rows), findings);
      CHECK(lab->Warnings().empty());
    });
  }

  TEST_CASE("product op: values that underflow and overflow") {
    for (const float unit : {0x1p-26f, 0x1p-15f, 0x1p12f, 0x1p14f}) {
      Settings settings;
      settings.unit = unit;
      CheckSteps(Plain(), settings);
      settings.counted = false;
      CheckSteps(Plain(), settings);
    }
  }

  TEST_CASE("product op: every rule decides as on the CPU, and again from what it has seen") {
    for (const LayerMethod method :
         {LayerMethod::kPass, LayerMethod::kFixed, LayerMethod::kApproxRange,
          LayerMethod::kLognormal, LayerMethod::kAbsRange, LayerMethod::kElementWiseRange,
          LayerMethod::kExactRange, LayerMethod::kState})
      for (const float unit : {0x1p-20f, 1.0f}) {
        Settings settings;
        settings.method = method, settings.unit = unit;
        CheckSteps(Plain(), settings, 3);
        CheckSteps(LinearCase("linear", {7, 1, 1, 64}, 10, true), settings, 2);
      }
  }

  TEST_CASE("product op: the authors' program rounds alpha * dy, dw and db") {
    for (const LayerMethod method :
         {LayerMethod::kFixed, LayerMethod::kApproxRange, LayerMethod::kAbsRange}) {
      Settings settings;
      settings.method = method, settings.reference = true, settings.dw_format = kFp8E4M3;
      settings.unit = 0x1p-12f, settings.scale = 12;  // what is rounded before / S counts
      CheckSteps(Plain(), settings, 2);
    }
  }

  TEST_CASE("product op: dw in a format of its own") {
    Settings settings;
    settings.dw_format = kFp8E5M2;
    CheckSteps(Plain(), settings);
  }

  TEST_CASE("product op: stochastic rounding takes the CPU's random words") {
    Settings settings;
    settings.stochastic = true, settings.format = kFp8E4M3;
    CheckSteps(Plain(), settings);
  }

  TEST_CASE("product op: where nothing is measured a plan may round") {
    Settings settings;
    settings.measured = false, settings.counted = false;
    for (const NumberFormat& format : {kFp16, kBf16, kFp32}) {
      settings.format = format;
      CheckSteps(Plain(), settings);
      MatmulCase plain = Plain();
      plain.bias = false;
      CheckSteps(plain, settings);
    }
  }

  TEST_CASE("product op: batches of changing size, gradients added up") {
    OnBoth([&](Lab& lab, Findings& findings) {
      const Layer layer(lab, Plain(), {});
      for (const int rows : {4, 1, 3, 4}) {
        Pass pass = PassOf(rows);
        pass.accumulate = rows == 3;
        layer.Step(pass, findings);
      }
    });
  }

  TEST_CASE("product op: a NaN and an infinity go where they go on the CPU") {
    OnBoth([&](Lab& lab, Findings& findings) {
      Settings settings;
      settings.method = LayerMethod::kExactRange;
      const Layer layer(lab, Unpadded(), settings);
      Values dy = Whole(layer.spec.y.shape.numel(), 1, 4);
      dy[5] = INFINITY;
      lab.Set(layer.spec.dy.tensor, dy);
      layer.Step(PassOf(4), findings);
      dy[77] = NAN;
      lab.Set(layer.spec.dy.tensor, dy);
      layer.Step(PassOf(4), findings);
    });
  }
}

}  // namespace ada::backend::test
