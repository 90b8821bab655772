// The Hadamard transform of both operands of a product: groups of n values along the axis that it
// sums over become H diag(signs) v / sqrt(n), which spreads outliers and leaves the result
// unchanged. In forward and dx they are consecutive channels, input and output ones, at one place
// or tap and of one group; a linear layer's in PyTorch's order. In dw they come from consecutive
// rows: images for a linear layer, positions of a sequence, pixels for a 1x1 convolution; for other
// convolutions they are images at one place, the same for x and dy, because a tap combines
// different pixels of x and dy. What remains beyond whole groups is not transformed, in either.
// Source: Transformer Engine at d0067d0, NVFP4QuantizerRef (16-point, Sylvester's matrix, these
// signs); torchao at 36027d8, reference_rht.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "number/blocks/block_quantizer.h"
#include "number/host_device.h"
#include "number/random.h"

namespace ada::backend {

inline constexpr int kHadamardSize = 16, kMostHadamard = 128;
using HadamardSigns = std::array<float, kHadamardSize>;
inline constexpr HadamardSigns kFixedSigns = {1,  1,  1,  -1, 1,  -1, -1, -1,
                                              -1, -1, -1, 1,  -1, 1,  -1, -1};

// One of 2^16 choices, by word 0 of (key, draw).
ADA_HOST_DEVICE inline HadamardSigns RandomSigns(std::uint64_t key, std::uint64_t draw) {
  const std::uint32_t word = Philox(key, draw, 0)[0];
  HadamardSigns signs{};
  for (int i = 0; i < kHadamardSize; ++i)
    signs[static_cast<std::size_t>(i)] = (word >> i & 1u) != 0 ? -1.0f : 1.0f;
  return signs;
}

// The transform of one operand, the same for the other operand of its product.
struct HadamardRule {
  int size = 0;  // 16, 32, 64 or 128; 0: none
  bool random = false;
  std::vector<float> listed = {};  // `size` signs; empty and not random: the fixed ones, repeated
  std::uint64_t stream = 0;        // of random signs
  explicit operator bool() const { return size > 0; }

  // Random ones are bits of Philox(seed ^ stream, draw, 0), word by word.
  std::vector<float> Signs(std::uint64_t seed, std::uint64_t draw) const {
    if (!random && !listed.empty()) return listed;
    std::vector<float> signs(static_cast<std::size_t>(size));
    const auto words = Philox(seed ^ stream, draw, 0);
    for (std::size_t i = 0; i < signs.size(); ++i) {
      const bool minus = (words[i / 32] >> i % 32 & 1u) != 0;
      signs[i] = random ? (minus ? -1.0f : 1.0f) : kFixedSigns[i % kHadamardSize];
    }
    return signs;
  }
};

// 1 / sqrt(size), as fp32.
ADA_HOST_DEVICE static constexpr float HadamardFactor(int size) {
  return size == 16 ? 0.25f : size == 32 ? 0x1.6a09e6p-3f : size == 64 ? 0.125f : 0x1.6a09e6p-4f;
}

// Transforms `size` values that lie `step` apart, for `lanes` adjacent columns, in place.
ADA_HOST_DEVICE inline void HadamardInPlace(const float* signs, int size, float* values,
                                            std::int64_t step, std::int64_t lanes) {
  for (std::int64_t i = 0; i < size; ++i)
    for (std::int64_t k = 0; k < lanes; ++k) values[i * step + k] *= signs[i];
  for (std::int64_t half = 1; half < size; half *= 2)
    for (std::int64_t i = 0; i < size; i += 2 * half)
      for (std::int64_t j = i; j < i + half; ++j)
        for (std::int64_t k = 0; k < lanes; ++k) {
          float &a = values[j * step + k], &b = values[(j + half) * step + k];
          const float sum = a + b, difference = a - b;
          a = sum, b = difference;
        }
  for (std::int64_t i = 0; i < size; ++i)
    for (std::int64_t k = 0; k < lanes; ++k) values[i * step + k] *= HadamardFactor(size);
}

// Every whole group of each line of a layout, in place.
inline void HadamardOfLines(const std::vector<float>& signs, const BlockLayout& layout,
                            float* values) {
  const std::int64_t size = std::ssize(signs);
  for (std::int64_t m = 0; m < layout.matrices; ++m)
    for (std::int64_t row = 0; row < layout.rows; ++row)
      for (std::int64_t i = 0; i + size <= layout.length; i += size)
        HadamardInPlace(
            signs.data(), static_cast<int>(size),
            values + m * layout.matrix_stride + row * layout.row_stride + i * layout.stride,
            layout.stride, 1);
}

}  // namespace ada::backend
