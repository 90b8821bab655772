// Whole runs on the CUDA backend, with their logs and checkpoints: the same bytes again, whether
// batches are made in backend memory or by the loader, and whether or not the run was interrupted.
#include <doctest/doctest.h>

#include "cuda/run_lab.h"
#include "step/batches/batches.h"

namespace ada::backend::test {
namespace {

// Whether training images of such a run go to the device as bytes.
bool SendsBytes(config::Config config) {
  config::FillDefaults(config);
  const auto backend = MakeBackendUnderTest();
  const run::RunData data = run::ReadData(config);
  return step::MakeBatches(*backend, data.train, run::TrainLoader(config, data))->as_bytes();
}

}  // namespace

TEST_SUITE(ADA_SUITE) {
  TEST_CASE("whole runs: the same bytes again, from the loader, and after an interruption") {
    // A run that ends at step 4 is evaluated there, which may give it another best checkpoint.
    for (const std::string changed :
         {"scaling.policy=adaptive;scaling.method=exact_range;train.accumulate=2",
          "scaling.policy=layerwise_dynamic;scaling.init_scale=16777216;scaling.growth_interval=3",
          "scaling.policy=none;precision.format=fp8_e5m2;precision.tensor_scaling.kind=delayed"}) {
      const std::string changes = changed + ";checkpoint.best=false";
      CAPTURE(changes);
      const testing::TempFolder folder;
      const std::string path = folder.path();
      Train(Small(changes), path + "/once", 7);
      Train(Small(changes), path + "/again", 7);
      CheckSameFiles(path + "/once", path + "/again");
      Train(Small(changes), path + "/halves", 4);
      Train(Small(changes), path + "/halves", 7);
      CheckSameFiles(path + "/once", path + "/halves", "evaluation.csv");
      CHECK(testing::HoldsEvaluations(path + "/halves", path + "/once"));
      // The probe of step 1 wants its images on the host: batches are the loader's in the whole
      // run.
      Train(Small(changes + ";log.probe_every=1000"), path + "/loader", 7);
      CheckSameFiles(path + "/once", path + "/loader", "underflow.csv");
    }
  }

  TEST_CASE("whole runs: images that the host colours go as bytes, and change no byte of a run") {
    const std::string colored = "data.augment.color_jitter.brightness=0.4;scaling.policy=adaptive";
    for (const std::string& changes :
         {colored, colored + ";train.accumulate=2", colored + ";data.workers=0"}) {
      CAPTURE(changes);
      REQUIRE(SendsBytes(Small(changes)));
      const testing::TempFolder folder;
      const std::string path = folder.path();
      Train(Small(changes), path + "/bytes", 7);
      Train(Small(changes), path + "/halves", 4);
      Train(Small(changes), path + "/halves", 7);
      CheckSameFiles(path + "/bytes", path + "/halves", "evaluation.csv");
      Train(Small(changes + ";log.probe_every=1000"), path + "/fp32", 7);
      CheckSameFiles(path + "/bytes", path + "/fp32", "underflow.csv");
    }
    CHECK_FALSE(SendsBytes(Small(colored + ";data.augment.mixup.alpha=0.2")));
  }
}

}  // namespace ada::backend::test
