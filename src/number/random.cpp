// The draws that are more than one word; Philox itself is inline in the header.
#include "number/random.h"

#include <cmath>
#include <numbers>

#include "error.h"

namespace ada {

std::uint32_t RandomStream::Below(std::uint32_t n) {
  ADA_CHECK(n >= 1);
  // The high word of the product is the result; low words below 2^32 mod n would favor some results
  // and are drawn again.
  std::uint64_t product = std::uint64_t{NextU32()} * n;
  if (static_cast<std::uint32_t>(product) < n) {
    const std::uint32_t threshold = -n % n;  // 2^32 mod n
    while (static_cast<std::uint32_t>(product) < threshold) {
      product = std::uint64_t{NextU32()} * n;
    }
  }
  return static_cast<std::uint32_t>(product >> 32);
}

double RandomStream::Normal() {
  const auto next53 = [this] {
    const std::uint64_t high = NextU32(), low = NextU32();
    return static_cast<double>((high << 32 | low) >> 11);
  };
  constexpr double kUnit = 0x1p-53;
  const double u1 = (next53() + 1) * kUnit;  // in (0, 1]: its logarithm is finite
  const double u2 = next53() * kUnit;
  return std::sqrt(-2 * std::log(u1)) * std::cos(2 * std::numbers::pi * u2);
}

void RandomStream::Seek(std::uint64_t position) {
  position_ = position;
  if (position_ % 4 != 0) block_ = Philox(seed_, stream_, position_ / 4);
}

}  // namespace ada
