// Values of fp8_e4m3 and fp8_e5m2 as one-byte codes, for the matmuls that read them; everywhere
// else such values are stored in fp32.
#pragma once
#include <cstdint>

#include "backend/cuda/kernels/tensor_span.h"
#include "number/host_device.h"

namespace ada::backend::cuda {

enum class Fp8 : std::uint8_t { kNone, kE4M3, kE5M2 };

// x lies on the format's grid.
// fp8_e5m2 is the upper half of fp16; fp8_e4m3 has its own bias, and one NaN instead of infinities.
ADA_HOST_DEVICE inline std::uint8_t ToFp8(Fp8 format, float x) {
  if (format == Fp8::kE5M2) return static_cast<std::uint8_t>(Fp16CodeOf(x) >> 8);
  constexpr std::uint32_t kSmallestNormal = 0x3c800000u;  // 2^-6, whose code is 8
  constexpr std::uint32_t kNan = 0x7f;
  const std::uint32_t bits = BitsOf(x), u = bits & 0x7fffffffu;
  const std::uint32_t code = u >= kInfinityBits ? kNan
                             : u >= kSmallestNormal
                                 ? ((u - kSmallestNormal) >> 20) + 8
                                 : static_cast<std::uint32_t>(OfBits(u) * 512.0f);
  return static_cast<std::uint8_t>((bits >> 24 & 0x80u) | code);
}
ADA_HOST_DEVICE inline float FromFp8(Fp8 format, std::uint8_t code) {
  if (format == Fp8::kE5M2) return OfFp16(static_cast<std::uint16_t>(code << 8));
  const std::uint32_t sign = (code & 0x80u) << 24, u = code & 0x7fu;
  if (u == 0x7f) return OfBits(sign | 0x7fc00000u);
  if (u < 8) return OfBits(sign | BitsOf(static_cast<float>(u) / 512.0f));
  return OfBits(sign | (0x3c800000u + ((u - 8) << 20)));
}

// Values 4 i .. 4 i + 3 of n as codes, times the tensor's scale (null: 1). A value that was divided
// by its scale when it was stored becomes what it was before, as in RoundedAs.
struct PackFp8 {
  TensorSpan in;
  const float* scale;
  NumberGrid grid;
  Fp8 format;
  std::uint8_t* out;
  std::int64_t n;
  ADA_HOST_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t end = 4 * i + 4 < n ? 4 * i + 4 : n;
    for (std::int64_t k = 4 * i; k < end; ++k) {
      const float x = Load(in, k);
      const bool scaled = scale != nullptr && *scale != 1;
      out[k] = ToFp8(format, scaled ? RoundToGrid(grid, x * *scale) : x);
    }
  }
};

// What brings sums of products of scaled values back: 1 / (first * second). Null: 1.
// Body of ForEach over one; computed in double, since a product of two scales may leave fp32.
struct UndoScales {
  const float *first, *second;
  float* factor;
  ADA_HOST_DEVICE void operator()(std::int64_t) const {
    const double a = first == nullptr ? 1 : *first, b = second == nullptr ? 1 : *second;
    *factor = static_cast<float>(1 / (a * b));
  }
};

}  // namespace ada::backend::cuda
