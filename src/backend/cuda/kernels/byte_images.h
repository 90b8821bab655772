// The fp32 values of images stored as bytes, channel by channel.
#pragma once
#include <cstdint>

#include "backend/cuda/kernels/tensor_span.h"
#include "backend/cuda/launch.h"

namespace ada::backend::cuda {

// Four values a thread: one load of four bytes, one store of 16. `bytes` and `out` are aligned for
// that.
// Body of ForEach over a quarter of the values, rounded up. The table has the mean and deviation of
// data.normalize in it, so that values have the bits of the host's.
struct ValuesOfBytes {
  ADA_HOST_DEVICE void operator()(std::int64_t four) const {
    const std::int64_t i = 4 * four;
    auto c = static_cast<std::uint32_t>(static_cast<std::uint64_t>(i) % channels);
    if (i + 4 > values) {
      for (std::int64_t k = i; k < values; ++k) out[k] = Next(bytes[k], c);
      return;
    }
    const std::uint32_t codes = reinterpret_cast<const std::uint32_t*>(bytes)[four];
    Vec4 x;
    for (int k = 0; k < 4; ++k) x.of[k] = Next(codes >> 8 * k & 0xffu, c);
    reinterpret_cast<Vec4*>(out)[four] = x;
  }
  // The value of a byte of channel c; advances c to the channel of the next byte.
  ADA_HOST_DEVICE float Next(std::uint32_t byte, std::uint32_t& c) const {
    const float value = table[c * 256 + byte];
    if (++c == channels) c = 0;
    return value;
  }

  const std::uint8_t* bytes;
  const float* table;  // [channels][256]
  float* out;
  std::int64_t values;
  std::uint32_t channels;
};

}  // namespace ada::backend::cuda
