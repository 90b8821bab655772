// The Hadamard transform of operands: groups of 16 values along the axis that a matmul sums over
// become H diag(signs) v / 4, which spreads outliers and leaves the result unchanged. The 16 values
// come from consecutive rows: images for a linear layer, positions of a sequence, pixels for a 1x1
// convolution. For other convolutions they are 16 images at one place, the same for x and dy,
// because a tap combines different pixels of x and dy. A remainder of the batch is not transformed.
// Source: Transformer Engine at d0067d0, NVFP4QuantizerRef (16-point, Sylvester's matrix, these
// signs); torchao at 36027d8, reference_rht.
#pragma once
#include <array>
#include <cstdint>

#include "number/host_device.h"
#include "number/random.h"

namespace ada::backend {

inline constexpr int kHadamardSize = 16;
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

// Transforms 16 values that lie `step` apart, for `lanes` adjacent columns, in place.
ADA_HOST_DEVICE inline void HadamardInPlace(const HadamardSigns& signs, float* values,
                                            std::int64_t step, std::int64_t lanes) {
  for (std::int64_t i = 0; i < kHadamardSize; ++i)
    for (std::int64_t k = 0; k < lanes; ++k)
      values[i * step + k] *= signs[static_cast<std::size_t>(i)];
  for (std::int64_t half = 1; half < kHadamardSize; half *= 2)
    for (std::int64_t i = 0; i < kHadamardSize; i += 2 * half)
      for (std::int64_t j = i; j < i + half; ++j)
        for (std::int64_t k = 0; k < lanes; ++k) {
          float &a = values[j * step + k], &b = values[(j + half) * step + k];
          const float sum = a + b, difference = a - b;
          a = sum, b = difference;
        }
  for (std::int64_t i = 0; i < kHadamardSize; ++i)
    for (std::int64_t k = 0; k < lanes; ++k) values[i * step + k] *= 0.25f;
}

}  // namespace ada::backend
