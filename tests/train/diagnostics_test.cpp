// --verbose says how products are computed, and why layers are left to oneDNN.
#include <string>

#include "backend/cpu/cpu_backend.h"
#include "train/small_run.h"

namespace ada::testing {
TEST_SUITE("cpu") {
  TEST_CASE("--verbose names the layers that kernels of our own do not compute, with the reason") {
    const std::string isa = backend::cpu::MakeCpuBackend(1)->InstructionSet();
    const TempFolder folder;
    const auto run = WriteConfig(folder, "diagnostics", R"(
data: {dataset: synthetic, batch_size: 8, synthetic: {train: 16, test: 8}}
model:
  layers:
    - {name: conv1, kind: conv2d, channels: 16, kernel: 3, padding: 1}
    - {name: conv2, kind: conv2d, channels: 16, kernel: 3, padding: 1, groups: 2}
    - {name: conv3, kind: conv2d, channels: 16, kernel: 3, padding: 1}
    - {name: pool, kind: global_avg_pool}
    - {name: fc, kind: linear, features: 10}
precision: {format: fp16, layers: [{match: fc, format: fp32}]}
train: {max_steps: 1}
)");
    const Outcome quiet = Run(run, folder.path());
    ADA_REQUIRE_EXIT(quiet, 0);
    CHECK(!Contains(quiet.err + quiet.out, "on oneDNN"));
    CHECK(!Contains(quiet.err + quiet.out, "products of layers"));
    const Outcome verbose = Run(With(run, {"--verbose", "--overwrite"}), folder.path());
    ADA_REQUIRE_EXIT(verbose, 0);
    const std::string said = verbose.err + verbose.out;
    CAPTURE(said);
    CHECK(!Contains(said, "layer conv1: in fp32"));
    CHECK(Contains(said, "layer conv2: on oneDNN in fp32: its channels are in groups") ==
          (isa != "sse2"));
    CHECK(Contains(said, "layer fc: on oneDNN in fp32: what it reads is not kept in 16 bits") ==
          (isa == "amx"));
    const char* ways = isa == "sse2" ? "products of layers: 4 on oneDNN in fp32"
                       : isa == "amx"
                           ? "products of layers: 2 on oneDNN in fp32, 2 on tiles of bf16"
                           : "products of layers: 1 by Winograd's algorithm in fp32, 2 directly in "
                             "fp32, 1 on oneDNN in fp32";
    CHECK(Contains(said, ways));
  }
}

}  // namespace ada::testing
