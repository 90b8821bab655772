// The program's whole training steps against recorded ones; see golden_steps.h.
#include "train/golden_steps.h"

namespace ada::testing {
namespace {

std::string TrainInProgram(const std::string& text, const TempFolder& folder) {
  const auto outcome = Run(WriteConfig(folder, "run", text), folder.path());
  ADA_REQUIRE_EXIT(outcome, 0);
  return folder / "run";
}

TEST_SUITE("cpu") {
  TEST_CASE("recorded steps of a LeNet on Fashion-MNIST") {
    if (!std::filesystem::exists(kFashion))
      ADA_SKIP("Debian's package dataset-fashion-mnist is not installed");
    for (const Case& c : kLenetCases) CheckCase(c, kFashion, TrainInProgram);
  }

  TEST_CASE("recorded steps of ResNet-20 on CIFAR-10") {
    const std::string cifar = Cifar10Folder();
    if (cifar.empty())
      ADA_SKIP("no CIFAR-10 in $ADA_CIFAR10 or data/cifar-10; ada-train fetch cifar10");
    for (const Case& c : kResnetCases)
      CheckCase(c, std::filesystem::absolute(cifar).string(), TrainInProgram);
  }
}

}  // namespace
}  // namespace ada::testing
