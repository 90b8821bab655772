// Recorded training steps (train/golden_steps.h) on the CUDA backend.
#include "train/golden_steps.h"

#include "compare/training_run.h"
#include "cuda/on_both.h"

namespace ada::backend::test {
namespace {

std::string TrainUnderTest(const std::string& text, const testing::TempFolder& folder) {
  const std::string run = folder / "run";
  TrainOn(*MakeBackendUnderTest(), text, {}, run);
  return run;
}

TEST_SUITE(ADA_SUITE) {
  TEST_CASE("recorded steps of a LeNet on Fashion-MNIST, on the CUDA backend") {
    if (!std::filesystem::exists(testing::kFashion))
      ADA_SKIP("Debian's package dataset-fashion-mnist is not installed");
    for (const testing::Case& c : testing::kLenetCases)
      CheckCase(c, testing::kFashion, TrainUnderTest);
  }

#ifdef ADA_CUDA_DEVICE  // minutes on the host executor
  TEST_CASE("recorded steps of ResNet-20 on CIFAR-10, on the CUDA backend") {
    const std::string cifar = testing::Cifar10Folder();
    if (cifar.empty())
      ADA_SKIP("no CIFAR-10 in $ADA_CIFAR10 or data/cifar-10; ada-train fetch cifar10");
    for (const testing::Case& c : testing::kResnetCases)
      CheckCase(c, std::filesystem::absolute(cifar).string(), TrainUnderTest);
  }
#endif
}

}  // namespace
}  // namespace ada::backend::test
