// libFuzzer's way in: one program for all targets, which ADA_FUZZ_TARGET chooses by name.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "fuzz/targets.h"

namespace {
void (*run)(std::string_view input) = nullptr;
}

extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
  const char* name = std::getenv("ADA_FUZZ_TARGET");
  for (const ada::fuzz::Target& target : ada::fuzz::kTargets) {
    if (name != nullptr && target.name == name) run = target.run;
  }
  if (run != nullptr) return 0;
  std::fprintf(stderr, "fuzz: ADA_FUZZ_TARGET names no target; these exist:\n");
  for (const ada::fuzz::Target& target : ada::fuzz::kTargets)
    std::fprintf(stderr, "  %.*s\n", static_cast<int>(target.name.size()), target.name.data());
  std::exit(2);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  run({reinterpret_cast<const char*>(data), size});
  return 0;
}
