// RoundToHalf against the host's conversions and against the definition of nearest.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>

#include "number/number_format.h"
#include "number/number_grid.h"

namespace ada::scaling {
namespace {

void CheckAgainstHost(float x) {
  const double ours = RoundToHalf(x);
  const float host = DecodeFp16(EncodeFp16(x));
  if (std::isnan(host)) {
    CHECK(std::isnan(ours));
  } else if (std::bit_cast<std::uint32_t>(static_cast<float>(ours)) !=
             std::bit_cast<std::uint32_t>(host)) {
    CAPTURE(x);
    CHECK(ours == host);
  }
}

TEST_SUITE("cpu") {
  TEST_CASE("fp16 values, midpoints between them and one fp32 step around each") {
    for (std::uint32_t code = 0; code < 0x7C00; ++code) {
      const float value = DecodeFp16(static_cast<std::uint16_t>(code));
      const float above = code == 0x7BFF ? 65536 : DecodeFp16(static_cast<std::uint16_t>(code + 1));
      const float middle = value + (above - value) / 2;
      for (const float x : {value, middle}) {
        for (const float y : {x, std::nextafter(x, 0.0f), std::nextafter(x, INFINITY)}) {
          CheckAgainstHost(y);
          CheckAgainstHost(-y);
        }
      }
      CHECK(RoundToHalf(value) == value);
    }
  }

  TEST_CASE("a sweep over all fp32 exponents, and specials") {
    for (std::uint32_t bits = 0; bits < 0x7F800000u; bits += 0x3039) {
      CheckAgainstHost(std::bit_cast<float>(bits));
    }
    CHECK(std::isinf(RoundToHalf(INFINITY)));
    CHECK(RoundToHalf(-1e300) == -INFINITY);
    CHECK(RoundToHalf(1e-300) == 0);
    CHECK(std::isnan(RoundToHalf(NAN)));
    CHECK(std::signbit(RoundToHalf(-0.0)));
    // A double is rounded once: through fp32 this would be a tie and go down to 1.
    CHECK(RoundToHalf(1 + 0x1p-11 + 0x1p-40) == 1 + 0x1p-10);
  }
}

}  // namespace
}  // namespace ada::scaling
