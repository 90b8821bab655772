// How often a training step asks the device: once, for all that lies between its batch and its
// update, and what it fetches from there.
#ifndef ADA_CUDA_DEVICE
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "backend/cuda/context.h"
#include "cuda/host/host_stream.h"
#include "cuda/run_lab.h"

namespace ada::backend::test {
namespace {

using Names = std::vector<std::string>;

std::ptrdiff_t Count(const Names& names, const std::string& part) {
  return std::count_if(names.begin(), names.end(), [&](const std::string& name) {
    return name.find(part) != std::string::npos;
  });
}

// What each of the micro-batches of twelve steps, two epochs, asks for, its images first. Only the
// first step is logged; nothing is kept, and evaluated at the end alone.
std::vector<Names> StepsOf(const std::string& changes, std::size_t micro_batches = 12) {
  auto stream = std::make_unique<cuda::HostStream>();
  cuda::HostStream& names = *stream;
  const auto backend = cuda::MakeBackendOn(std::move(stream), {"test", "none"}, {});
  names.KeepNames();
  const testing::TempFolder folder;
  Train(
      Small("train={epochs: 2};log.every=1000;evaluate.every_epochs=0;checkpoint={every_steps: 0, "
            "every_epochs: 0};" +
            changes),
      folder.path(), 12, *backend);
  std::vector<Names> steps;
  for (std::string& name : names.TakeNames()) {
    if (name.find("FillBatch") != std::string::npos) steps.emplace_back();
    if (!steps.empty()) steps.back().push_back(std::move(name));
  }
  REQUIRE(steps.size() > micro_batches);
  steps.resize(micro_batches);
  return steps;
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("one graph: a step that is not logged is one replay, whatever its policy and its end") {
    for (const std::string changes :
         {"scaling.policy=none;precision.format=bf16", "scaling.policy=none",
          "scaling.policy=adaptive;scaling.method=exact_range",
          // Skipped steps do not refresh: a variant of their own, seen often enough.
          "scaling.policy=dynamic;scaling.init_scale=1e30;scaling.backoff_factor=0.999",
          "scaling.policy=layerwise_dynamic;scaling.init_scale=1024",
          "scaling.policy=none;train.clip_norm=0.1;optimizer={kind: adamw, lr: 1e-3}"}) {
      CAPTURE(changes);
      const std::vector<Names> steps = StepsOf(changes);
      CHECK(Count(steps[0], "replay") == 0);
      for (std::size_t i = 3; i < steps.size(); ++i) {
        CAPTURE(i);
        CHECK(Count(steps[i], "replay") == 1);
        // All of the step is in it, up to the update.
        const auto replay = std::find(steps[i].begin(), steps[i].end(), "replay");
        const Names before(steps[i].begin(), replay), after(replay, steps[i].end());
        CHECK(before.size() <= 5);  // the batch, the pass's values, what the update is to do
        CHECK(Count(before, "Refresh") == 0);
        CHECK(Count(after, "MeasureGradients") == 1);
      }
    }
  }

  TEST_CASE("one graph: two micro-batches are a replay each") {
    const std::vector<Names> parts = StepsOf("scaling.policy=adaptive;train.accumulate=2", 24);
    for (std::size_t i = 6; i < parts.size(); ++i) {
      CHECK(Count(parts[i], "replay") == 1);
      CHECK(Count(parts[i], "MeasureGradients") == static_cast<std::ptrdiff_t>(i % 2));
    }
  }

  TEST_CASE("one graph: a step that is not logged fetches the decisions of branches alone") {
    const std::vector<Names> steps = StepsOf("scaling.policy=adaptive;scaling.method=exact_range");
    CHECK(Count(steps[0], "to host") > 2);
    // The last one is followed by an evaluation.
    for (std::size_t i = 1; i + 1 < steps.size(); ++i) CHECK(Count(steps[i], "to host") == 1);
    // Layers whose scales do not move get none.
    const std::vector<Names> layers =
        StepsOf("scaling.policy=layerwise_dynamic;scaling.init_scale=1024");
    for (std::size_t i = 4; i + 1 < layers.size(); ++i) {
      CHECK(Count(layers[i], "to host") == 2);  // what overflowed, too
      // What the next update is to do, and the order of the second epoch.
      CHECK(Count(layers[i], "to device") == (i == 5 ? 2 : 1));
    }
  }
}

}  // namespace ada::backend::test
#endif
