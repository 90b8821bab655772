// Equal configurations give equal bytes: again, with any number of threads, from the configuration
// that a run writes next to its logs.
#include <string>
#include <vector>

#include "train/small_run.h"

namespace ada::testing {
namespace {

using Arguments = std::vector<std::string>;

// Batches of several sizes and shapes: an odd tail, one image for each of many threads.
const std::string kConfigs[] = {
    SmallRun(),
    R"(
data: {dataset: synthetic, synthetic: {train: 75, test: 40}, batch_size: 30, drop_last: false}
model: {zoo: resnet20, shortcut: B}
precision: {format: bf16}
scaling: {policy: dynamic}
optimizer: {kind: adam}
log: {every: 1, statistics: [y, w, dx, dw, dy]}
device: {kind: cpu, threads: 2}
)",
};

TEST_SUITE("cpu") {
  TEST_CASE("the same bytes with 1, 2, 3 and 4 threads, and twice") {
    for (const std::string& text : kConfigs) {
      CAPTURE(text);
      const TempFolder folder;
      const Arguments first = WriteConfig(folder, "first", text);
      ADA_REQUIRE_EXIT(Run(first, folder.path()), 0);
      for (const std::string threads : {"1", "2", "3", "4"}) {
        CAPTURE(threads);
        const Arguments again =
            With(WriteConfig(folder, "again", text), {"--threads", threads, "--overwrite"});
        ADA_REQUIRE_EXIT(Run(again, folder.path()), 0);
        CHECK(Differences(folder / "first", folder / "again") == std::vector<std::string>{});
      }
    }
  }

  TEST_CASE("another seed gives other bytes") {
    const TempFolder folder;
    ADA_REQUIRE_EXIT(Run(WriteConfig(folder, "first", SmallRun()), folder.path()), 0);
    const Arguments other = With(WriteConfig(folder, "other", SmallRun()), {"--set", "seed=4"});
    ADA_REQUIRE_EXIT(Run(other, folder.path()), 0);
    CHECK(ReadBytes(folder / "first/steps.csv") != ReadBytes(folder / "other/steps.csv"));
  }

  TEST_CASE("config.yaml beside the logs runs again and gives the same run") {
    const TempFolder folder;
    const Arguments first = With(WriteConfig(folder, "first", SmallRun()),
                                 {"--set", "optimizer.lr=0.03", "--set", "train.epochs=2"});
    ADA_REQUIRE_EXIT(Run(first, folder.path()), 0);
    ADA_REQUIRE_EXIT(Run({"--config", "first/config.yaml", "--output", "again"}, folder.path()), 0);
    CHECK(Differences(folder / "first", folder / "again") == std::vector<std::string>{});
  }
}

}  // namespace
}  // namespace ada::testing
