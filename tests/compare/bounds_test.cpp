// How far sums may be off: the formulas of bounds.h in numbers.
#include "backend/compare/bounds.h"

#include <doctest/doctest.h>

namespace ada::backend::compare {
namespace {

TEST_SUITE("cpu") {
  TEST_CASE("bounds: sums in fp32, of units that truncate, and of units for 8 bits") {
    Sum sum;
    for (int i = 0; i < 4096; ++i) sum.Add(i % 2 == 0 ? 0.75 : -0.25);
    CHECK(sum.value == 1024);
    CHECK(sum.magnitude == 2048);
    const double plain = 2 * (8 + 2 * 64) * 0x1p-24 * 2048;
    CHECK(Around(sum, 1).width() == doctest::Approx(plain));
    CHECK(Around(sum, 8).width() == doctest::Approx(8 * plain));
    const double fp8 = 2 * (2 + 128) * 0x1p-13 * 2048;
    CHECK(AroundFp8(sum, 1).width() == doctest::Approx(plain + fp8));
    // What was seen on Hopper, nearly 2 % of a sum of 4096 random terms, lies within.
    CHECK(0.02 * sum.value < AroundFp8(sum, 8).width() / 2);
  }
}

}  // namespace
}  // namespace ada::backend::compare
