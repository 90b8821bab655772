// Which plans of a library are built, and in which order, by the names that cuDNN 9.19 gives them.
#ifndef ADA_CUDA_DEVICE
#include "backend/cuda/matmul/plan_choice.h"

#include <doctest/doctest.h>

namespace ada::backend::cuda {
namespace {

// Engines of y, and of a scaled dx.
const std::vector<std::string> kEngines = {"eng22_k2=16_k13=0", "eng22_k2=4_k13=0", "eng47_k2=2",
                                           "eng22_k2=1_k13=0", "eng62_k2=0_k24=1"};
const std::vector<std::string> kRunTime = {"eng1_k24=8", "eng1_k24=41", "eng2", "eng8"};

PlanChoice Skipping(int engines) { return {false, engines, false}; }
MatmulRequest Request(MatmulKind kind, Storage operands, bool scale) {
  MatmulRequest request;
  request.kind = kind, request.operands = operands, request.out = operands, request.scale = scale;
  return request;
}

TEST_SUITE("cpu") {
  TEST_CASE("plans: as the heuristics have them, without so many engines of the first") {
    using Order = std::vector<int>;
    CHECK(PlansToBuild(kEngines, {}) == Order{0, 1, 2, 3, 4});
    CHECK(PlansToBuild(kEngines, Skipping(1)) == Order{2, 4});
    CHECK(PlansToBuild(kEngines, Skipping(2)) == Order{4});
    CHECK(PlansToBuild(kEngines, Skipping(3)).empty());
    CHECK(PlansToBuild(kEngines, Skipping(99)).empty());
    CHECK(PlansToBuild(kRunTime, Skipping(1)) == Order{2, 3});
    CHECK(PlansToBuild({}, {}).empty());
    CHECK(EngineOf("eng67") == "eng67");
    CHECK(EngineOf("") == "");
  }

  TEST_CASE("plans: one of each engine is measured first") {
    using Order = std::vector<int>;
    CHECK(PlansToBuild(kEngines, {true, 0, false}) == Order{0, 2, 4, 1, 3});
    CHECK(PlansToBuild(kEngines, {true, 1, false}) == Order{2, 4});
  }

  TEST_CASE("plans: scaled data gradients take the engine for sm_90 or none") {
    using Order = std::vector<int>;
    CHECK(PlansToBuild(kRunTime, {false, 0, true}) == Order{2});
    CHECK(PlansToBuild(kRunTime, {true, 0, true}) == Order{2});
    CHECK(PlansToBuild(kRunTime, {false, 2, true}).empty());
    CHECK(PlansToBuild(kEngines, {false, 0, true}).empty());
    CHECK(NeedsSm90(Request(MatmulKind::kData, Storage::kF16, true)));
    CHECK(NeedsSm90(Request(MatmulKind::kData, Storage::kBF16, true)));
    CHECK_FALSE(NeedsSm90(Request(MatmulKind::kData, Storage::kF16, false)));
    CHECK_FALSE(NeedsSm90(Request(MatmulKind::kForward, Storage::kF16, true)));
    CHECK_FALSE(NeedsSm90(Request(MatmulKind::kWeights, Storage::kF16, false)));
    CHECK_FALSE(NeedsSm90(Request(MatmulKind::kData, Storage::kF32, true)));
  }

  TEST_CASE("plans: the settings that a plan is made with are of its key") {
    CHECK(KeyOf(PlanChoice()) == "");
    CHECK(KeyOf(PlanChoice{true, 2, true}) == ", measured, without 2 engines");
  }
}

}  // namespace
}  // namespace ada::backend::cuda
#endif
