// The weights of several layers made anew by one launch: what each layer multiplies, and what is
// measured of its weights, is what the CPU backend makes of one layer after the other.
#include <doctest/doctest.h>

#include <deque>
#include <string>
#include <vector>

#include "cuda/matmul_lab.h"

namespace ada::backend::test {
namespace {

using scaling::LayerMethod;

constexpr std::array<int, 2> kOne = {1, 1}, kThree = {3, 3}, kNone = {0, 0};

// Layers of several blocks and of less than one, with and without taps; in formats that are stored
// in 16 bits, emulated and not rounded; of which all, moments alone and nothing is measured.
struct Layers {
  explicit Layers(Lab& lab) {
    const std::vector<MatmulCase> cases = {
        {"3x3", {2, 4, 4, 24}, 32, kThree, kOne, kOne, kOne, 1, true},
        {"1x1", {2, 3, 3, 10}, 7, kOne, kOne, kNone, kOne, 1, false},
        {"grouped", {2, 4, 4, 16}, 16, kThree, kOne, kOne, kOne, 4, false}};
    for (const MatmulCase& c : cases)
      for (const NumberFormat& format : {kFp16, kFp8E4M3, kFp32})
        for (const bool measured : {true, false}) {
          Settings settings;
          settings.format = format, settings.measured = measured;
          settings.method = all.size() % 2 == 0 ? LayerMethod::kApproxRange : LayerMethod::kFixed;
          const std::uint64_t number = all.size();
          all.emplace_back(lab, c, settings, [&](MatmulSpec& spec) {
            spec.w_style.stochastic = number % 3 == 0, spec.w_style.stream = number;
          });
          ops.push_back(all.back().op.get());
        }
  }
  std::deque<Layer> all;
  std::vector<Op*> ops;
};

Pass RefreshPass(int step) {
  Pass pass = PassOf(2);
  pass.count = step % 2 == 1;
  pass.seed = 17, pass.draw = static_cast<std::uint64_t>(step);
  return pass;
}

}  // namespace

TEST_SUITE(ADA_SUITE) {
  TEST_CASE("weights of many layers are refreshed together") {
    OnBoth([](Lab& lab, Findings& findings) {
      const Layers layers(lab);
      for (int step = 0; step < 4; ++step) {
        const Pass pass = RefreshPass(step);
        lab->RefreshWeights(layers.ops, pass);
        for (const Layer& layer : layers.all) {
          layer.op->Forward(pass);
          layer.op->Backward(pass);
          layer.Report(pass, findings);
        }
      }
    });
  }

#ifndef ADA_CUDA_DEVICE
  TEST_CASE("weights of many layers are refreshed by one launch, also of layers that came later") {
    auto stream = std::make_unique<cuda::HostStream>();
    cuda::HostStream& names = *stream;
    Lab lab(cuda::MakeBackendOn(std::move(stream), {"test", "none"}, {}));
    const auto launches = [&](const std::vector<Op*>& ops, int step) {
      names.TakeNames();
      lab->RefreshWeights(ops, RefreshPass(step));
      int all = 0;
      for (const std::string& name : names.TakeNames())
        all += name.find("RefreshWeightsKernel") == 0;
      return all;
    };
    names.KeepNames();
    for (int round = 0; round < 2; ++round) {  // of the second the addresses may be the first's
      const Layers layers(lab);
      for (int step = 0; step < 3; ++step) CHECK(launches(layers.ops, step) == 1);
      layers.ops[0]->RefreshWeights(RefreshPass(0));
      CHECK(names.TakeNames().back().find("RefreshWeightsKernel") == 0);
    }
    CHECK(launches({}, 0) == 0);
  }
#endif
}

}  // namespace ada::backend::test
