// Whole steps of networks whose products of fp8 operands read 8-bit codes, op by op against the
// CPU.
#ifndef ADA_CUDA_DEVICE
#include <doctest/doctest.h>

#include <string>

#include "compare/network_steps.h"
#include "cuda/agreement_lab.h"

namespace ada::backend::test {

TEST_SUITE("cpu") {
  TEST_CASE("fp8 codes: whole steps agree with the CPU, op by op") {
    const graph::test::TestNetwork network = {"awkward", graph::test::Awkward(), {5, 10, 9, 3}};
    for (const Training& training : AllTrainings()) {
      if (training.name.find("fp8") == std::string::npos && training.name != "patchwork") continue;
      CAPTURE(training.name);
      std::string first;
      CompareOptions options;
      options.report = [&](const compare::Difference& difference) {
        if (first.empty()) first = ToString(difference, "cpu", "cuda");
      };
      DeviceOptions hardware;
      hardware.fp8_hardware = true;
      const auto backend =
          MakeCompareBackend(cpu::MakeCpuBackend(1), MakeHostExecutedBackend(hardware), options);
      NetworkSteps steps(network, training, *backend);
      for (int i = 0; i < 5; ++i) steps.Step();
      CHECK(first == "");
      for (const std::string& diagnostic : backend->Diagnostics())
        CHECK(diagnostic.find("is not known") == std::string::npos);
    }
  }
}

}  // namespace ada::backend::test
#endif
