// The common scale where branches meet: tables written by hand from src/scaling/README.md. Recorded
// branch points: adaptive_golden_test.cpp.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "scaling/rules/rules.h"

namespace ada::scaling {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST_SUITE("cpu") {
  TEST_CASE("branch target") {
    struct Row {
      const char* what;
      std::vector<float> scales;
      double largest, u_max;
      float target;
    };
    const Row rows[] = {
        {"largest fits", {4, 16}, 1, 65504, 16},
        {"one candidate overflows", {1, 1024}, 2000, 65504, 1},
        {"strictly below u_max", {1, 8}, 65504, 65504, 0.5f},
        {"all zero", {2, 128}, 0, 65504, 128},
        {"halved from the smallest, not from the largest", {3, 4}, 40000, 65504, 1.5f},
        {"1/16 is the last halving", {1, 4}, 1e6, 65504, 0.0625f},
        {"beyond the last halving: largest power of two", {1, 4}, 2e6, 65504, 0x1p-5f},
        {"the power of two is strict as well", {1, 4}, 0x1p20 * 4, 0x1p16, 0x1p-7f},
        {"smallest below 1/8 is not halved", {0.1f, 0.1f}, 1e7, 65504, 0x1p-8f},
        {"beyond fp32: the smallest normal power", {1, 1}, 1e60, 65504, 0x1p-126f},
        {"inf", {2, 4}, kInf, 65504, 2},
        {"NaN", {8, 4}, kNan, 65504, 4},
        {"another format", {1, 256}, 300, 57344, 1},
        {"u_max under a scale that is no power of two", {7962624}, 255.5 / 7962624, 255.5, 3981312},
        {"bf16: no limit in practice", {1, 1024}, 1e30, 3.3895313892515355e38, 1024},
    };
    for (const Row& row : rows) {
      CAPTURE(row.what);
      const int count = static_cast<int>(row.scales.size());
      CHECK(BranchTarget(row.scales.data(), count, row.largest, row.u_max) == row.target);
    }
  }

  TEST_CASE("scales that are not finite: a target that is not either, unless another fits") {
    const float inf = INFINITY;
    struct Row {
      std::vector<float> scales;
      double largest, u_max;
    };
    for (const Row& row : {Row{{inf}, 0, 65504},
                           {{inf}, 1, 65504},
                           {{inf, inf}, 1e-30, 65504},
                           {{inf}, 1, kInf},
                           {{NAN}, 1, 65504},
                           {{NAN, inf}, 0, 65504}}) {
      CAPTURE(row.largest);
      const int count = static_cast<int>(row.scales.size());
      CHECK_FALSE(std::isfinite(BranchTarget(row.scales.data(), count, row.largest, row.u_max)));
      CHECK_FALSE(std::isfinite(BranchTargetReference(row.scales.data(), count,
                                                      static_cast<float>(row.largest),
                                                      static_cast<float>(row.u_max))));
    }
    const float mixed[] = {inf, 4};
    CHECK(BranchTarget(mixed, 2, 1, 65504) == 4);
    CHECK(BranchTargetReference(mixed, 2, 1, 65504) == 4);
    const float infinite[] = {inf, 8};  // 8 does not fit: it is halved as if it stood alone
    CHECK(BranchTarget(infinite, 2, 10000, 65504) == 4);
  }

  TEST_CASE("branch target of the authors' program") {
    struct Row {
      const char* what;
      std::vector<float> scales;
      float largest, target;  // NaN: it raises
    };
    const Row rows[] = {
        {"largest fits", {4, 16}, 1, 16},
        {"strictly below u_max", {1, 8}, 65504, 0.5f},
        {"halved from the smallest", {3, 4}, 40000, 1.5f},
        {"the product is rounded to fp32", {3}, 0x1.552aaap+14f, 1.5f},
        {"1/16 is the last halving", {1, 4}, 1e6f, 0.0625f},
        {"beyond it", {1, 4}, 2e6f, NAN},
        {"a smallest scale below 1/8 is not halved", {0.1f, 0.1f}, 1e6f, NAN},
        {"but taken where it fits", {0.1f, 0.1f}, 8e4f, 0.1f},
        {"inf", {2, 4}, INFINITY, NAN},
        {"NaN passes every comparison", {2, 4}, NAN, 0.0625f},
        {"NaN with small scales", {0.0625f, 4}, NAN, 0.0625f},
    };
    for (const Row& row : rows) {
      CAPTURE(row.what);
      const int count = static_cast<int>(row.scales.size());
      const float target = BranchTargetReference(row.scales.data(), count, row.largest, 65504);
      if (std::isnan(row.target)) {
        CHECK(std::isnan(target));
      } else {
        CHECK(target == row.target);
      }
    }
  }

  TEST_CASE("largest of the branches: a NaN counts in the first one alone") {
    const float scales[] = {2, 4, 8};
    const float plain[] = {1, 8, 2}, first[] = {NAN, 8, 2}, second[] = {1, NAN, 32};
    CHECK(BranchLargestReference(plain, scales, 3) == 2);
    CHECK(std::isnan(BranchLargestReference(first, scales, 3)));
    CHECK(BranchLargestReference(second, scales, 3) == 4);
  }

  TEST_CASE("factors in the gradients' type") {
    CHECK(BranchFactorReference(7, 3, false) == 7.0f / 3);
    CHECK(BranchFactorReference(7, 3, true) == 2.333984375f);
    CHECK(BranchFactorReference(0x1p-10f, 0x1p16f, true) == 0);
  }
}

}  // namespace
}  // namespace ada::scaling
