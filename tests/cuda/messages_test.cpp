// What is said where a GPU is missing or full: what, why and what to do.
#ifndef ADA_CUDA_DEVICE
#include "backend/cuda/messages.h"

#include <doctest/doctest.h>

namespace ada::backend::cuda {
namespace {

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_SUITE("cpu") {
  TEST_CASE("a missing driver, an old one, and a driver without a GPU") {
    CHECK(Has(NoDriverText(0, 13000), "no NVIDIA driver"));
    const std::string old = NoDriverText(12040, 13000);
    CHECK(Has(old, "it knows CUDA 12.4"));
    CHECK(Has(old, "built with CUDA 13.0"));
    CHECK(Has(old, "update the driver"));
    CHECK(NoDeviceText(nullptr) == "the NVIDIA driver finds no GPU");
    CHECK(Has(NoDeviceText("7"), "CUDA_VISIBLE_DEVICES is '7'"));
  }

  TEST_CASE("a GPU that is not there, and one that is too old") {
    CHECK(NoSuchDeviceText(1) == "the only GPU is cuda:0");
    CHECK(NoSuchDeviceText(4) == "the GPUs are cuda:0 to cuda:3");
    CHECK(Has(TooOldText("Tesla V100", 7, 0), "Tesla V100 (sm_70) is too old"));
    CHECK(TooOldText("T4", 7, 5).empty());
    CHECK(TooOldText("B200", 10, 0).empty());
  }

  TEST_CASE("a GPU without units for fp8") {
    CHECK(NoFp8Text("A100", 8, 0) ==
          "device.fp8: hardware: A100 (sm_80) has no units for fp8, which sm_89 (Ada) and newer "
          "have; use device.fp8: emulated");
    for (const int chip : {89, 90, 120}) CHECK(NoFp8Text("any", chip / 10, chip % 10).empty());
  }

  TEST_CASE("no memory: sizes and advice") {
    const std::uint64_t gib = std::uint64_t{1} << 30;
    const std::string text = OutOfMemoryText(1, {3 * gib, 20 * gib, gib / 2, 24 * gib});
    CHECK(
        text ==
        "device cuda:1: out of memory: 3.0 GiB more are needed; this run holds 20.0 GiB, and 512.0 "
        "MiB of the device's 24.0 GiB are free; use a smaller data.batch_size, the same batch in "
        "parts (train.accumulate), or a GPU that nobody else uses");
  }
}

}  // namespace
}  // namespace ada::backend::cuda
#endif
