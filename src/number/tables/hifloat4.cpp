// Each step rounds to bf16 where the reference does.
#include "number/tables/hifloat4.h"

#include <algorithm>
#include <cmath>

#include "number/number_format.h"

namespace ada {
namespace {

constexpr double kLeastScale = 0x1p-48, kMostScale = 49152;
constexpr int kScaleBias = 48;
constexpr std::uint8_t kNanScale = 255;

double RoundToBf16(double x) { return static_cast<double>(RoundTo(kBf16, x)); }

}  // namespace

HiFloat4Block QuantizeHiFloat4(std::span<const float> values) {
  constexpr auto kGroups = static_cast<std::size_t>(kHiFloat4Block / 4);
  HiFloat4Block block;
  std::array<double, kGroups> largest{};  // of four
  bool finite = true;
  for (std::size_t i = 0; i < values.size(); ++i) {
    finite = finite && std::isfinite(values[i]);
    largest[i / 4] = std::max(largest[i / 4], std::fabs(static_cast<double>(values[i])));
  }
  if (!finite) {
    block.scale = kNanScale;
    block.values.fill(std::nanf(""));
    return block;
  }
  const double amax = *std::max_element(largest.begin(), largest.end());
  const double wanted =
      std::clamp(RoundToBf16(amax * RoundToBf16(1.0 / 7.0)), kLeastScale, kMostScale);
  const int spacing = std::ilogb(wanted) - 2;
  const double scale = std::ldexp(std::nearbyint(std::ldexp(wanted, -spacing)), spacing);
  const double reciprocal = RoundToBf16(1.0 / scale);
  const int exponent = std::ilogb(scale);
  block.scale = static_cast<std::uint8_t>((exponent + kScaleBias) << 2 |
                                          (static_cast<int>(std::ldexp(scale, 2 - exponent)) - 4));
  for (std::size_t g = 0; g < kGroups; ++g) {
    const std::size_t eight = g / 2;
    const double pair = std::max(largest[2 * eight], largest[2 * eight + 1]);
    block.e8[eight] = pair * reciprocal >= 4 ? 1 : 0;
    block.e16[g] = std::ldexp(largest[g] * reciprocal, -block.e8[eight]) >= 2 ? 1 : 0;
    const int doubled = block.e8[eight] + block.e16[g];
    for (std::size_t i = 4 * g; i < std::min(4 * g + 4, values.size()); ++i) {
      const double quarters =
          std::ldexp(std::fabs(static_cast<double>(values[i])) * reciprocal, 2 - doubled);
      const auto code = static_cast<std::uint8_t>(std::min(std::floor(quarters + 0.5), 7.0));
      const bool negative = values[i] < 0;
      block.codes[i] = static_cast<std::uint8_t>(code | (negative ? 8 : 0));
      const double value = std::ldexp(static_cast<double>(code), doubled - 2) * scale;
      block.values[i] = static_cast<float>(negative ? -value : value);
    }
  }
  return block;
}

}  // namespace ada
