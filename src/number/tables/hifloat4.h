// HiFloat4: blocks of 64 values with three levels of scales, by its authors' reference
// (github.com/global-computing-consortium/HiFloat4, HiF4_NVFP4_v14f16.To_HiFX, N = 4). The scale of
// a block has 6 exponent bits and 2 of mantissa; each eight values may be doubled, and each four of
// these once more. Elements are quarters from 0 to 7/4.
#pragma once
#include <array>
#include <cstdint>
#include <span>

namespace ada {

inline constexpr int kHiFloat4Block = 64;

struct HiFloat4Block {
  std::uint8_t scale = 0;                              // E6M2: exponent + 48, then mantissa
  std::array<std::uint8_t, kHiFloat4Block / 8> e8{};   // 1: these eight are doubled
  std::array<std::uint8_t, kHiFloat4Block / 4> e16{};  // 1: these four are doubled
  std::array<std::uint8_t, kHiFloat4Block> codes{};    // sign on top of quarters
  std::array<float, kHiFloat4Block> values{};          // decoded
};

// values: at most 64; those that are missing count as zero. A block with a value that is not finite
// becomes NaN, with scale 255.
HiFloat4Block QuantizeHiFloat4(std::span<const float> values);

}  // namespace ada
