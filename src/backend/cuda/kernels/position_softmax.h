// Softmax of each position's channels (SoftmaxSpec).
#pragma once
#include <cmath>
#include <cstdint>

#include "backend/cuda/kernels/tensor_span.h"
#include "backend/elementary.h"
#include "number/host_device.h"

namespace ada::backend::cuda {

// The largest score of a position, and the sum of e^(score - that) over its channels.
struct PositionSum {
  double sum;
  float top;
  ADA_HOST_DEVICE float Of(float z) const {
    return static_cast<float>(Exponential(static_cast<double>(z) - static_cast<double>(top)) / sum);
  }
};
// For all positions. A NaN makes its whole position NaN.
struct SumPositions {
  ADA_HOST_DEVICE void operator()(std::int64_t position) const {
    const std::int64_t first = position * channels;
    float top = -HUGE_VALF;
    for (std::int64_t c = 0; c < channels; ++c) {
      const float z = Load(x, first + c);
      top = z > top ? z : top;
    }
    double sum = 0;
    for (std::int64_t c = 0; c < channels; ++c)
      sum += Exponential(static_cast<double>(Load(x, first + c)) - static_cast<double>(top));
    to[position] = {sum, top};
  }
  TensorSpan x;
  std::int64_t channels;
  PositionSum* to;
};
// Probability i, for RoundingStats::Round: unrounded, from the sums of SumPositions.
struct SoftmaxValue {
  ADA_HOST_DEVICE float operator()(std::int64_t i) const {
    return sums[static_cast<std::uint32_t>(i) / channels].Of(Load(x, i));
  }
  TensorSpan x;
  const PositionSum* sums;
  std::uint32_t channels;
};

// The sum of p dy over a position's channels, for all positions.
struct SumSlopes {
  ADA_HOST_DEVICE void operator()(std::int64_t position) const {
    double sum = 0;
    for (std::int64_t c = 0; c < p.channels; ++c) {
      const std::int64_t i = position * p.channels + c;
      sum += static_cast<double>(p(i)) * static_cast<double>(Load(dy, i));
    }
    to[position] = sum;
  }
  SoftmaxValue p;
  TensorSpan dy;
  double* to;
};
// dx of one value, p (dy - sum of p dy), for RoundingStats::Round.
struct SoftmaxSlope {
  ADA_HOST_DEVICE float operator()(std::int64_t i) const {
    const double sum = sums[static_cast<std::uint32_t>(i) / p.channels];
    return static_cast<float>(static_cast<double>(p(i)) * (static_cast<double>(Load(dy, i)) - sum));
  }
  SoftmaxValue p;
  TensorSpan dy;
  const double* sums;
};

}  // namespace ada::backend::cuda
