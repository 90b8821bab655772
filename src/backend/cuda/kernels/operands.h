// Operands of matmuls: codes of 8 bits, the Hadamard transform, current scales.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "backend/cuda/kernels/rounding.h"
#include "backend/cuda/kernels/tensor_span.h"
#include "backend/cuda/launch.h"
#include "backend/hadamard.h"
#include "number/host_device.h"
#include "scaling/rules/tensor_scale.h"

namespace ada::backend::cuda {

// --- Codes of 8 bits ---

// Values of fp8_e4m3 and fp8_e5m2 as one-byte codes, for the matmuls that read them; everywhere
// else such values are stored in fp32.
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

// --- Transforms and scales ---

// Other parts of the operands of matmuls: their Hadamard transform, and the current scale of their
// tensor.
// 16 values of one column at a time, 16 rows of `width` values one after the other; what is left
// over of the rows stays as it is. `grid`: what transformed values are rounded to. Body of ForEach
// over Items.
// Signs come first, then the butterfly, as HadamardInPlace has it. Rows of one group of 16 share no
// value with others.
struct TransformRows {
  ADA_HOST_DEVICE std::int64_t Items() const {
    return (rows + kHadamardSize - 1) / kHadamardSize * width;
  }
  ADA_HOST_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t row = i / width * kHadamardSize, column = i % width;
    const int count = static_cast<int>(rows - row < kHadamardSize ? rows - row : kHadamardSize);
    float values[kHadamardSize];
    ADA_UNROLL
    for (int k = 0; k < kHadamardSize; ++k)
      values[k] = k < count ? Load(in, (row + k) * width + column) : 0;
    if (count == kHadamardSize)
      HadamardInPlace((random ? RandomSigns(pass->seed ^ stream, pass->draw) : signs).data(),
                      kHadamardSize, values, 1, 1);
    ADA_UNROLL
    for (int k = 0; k < kHadamardSize; ++k)
      if (k < count)
        out[(row + k) * width + column] =
            count == kHadamardSize ? RoundToGrid(grid, values[k]) : values[k];
  }

  TensorSpan in;
  float* out;
  std::int64_t rows, width;
  HadamardSigns signs;  // fixed ones
  bool random;          // drawn in each pass, by `stream`
  std::uint64_t stream;
  const PassValues* pass;
  NumberGrid grid;
};

// *amax (0 before) = bits of the largest magnitude of n values.
struct LargestValueKernel {
  static constexpr int kThreads = 256, kPhases = 2;
  struct Shared {
    std::uint32_t largest[kThreads];
  };
  struct Own {};
  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own&) const {
    std::uint32_t largest = 0;
    if constexpr (kPhase == 0) {
      const std::int64_t step = std::int64_t{at.blocks} * kThreads;
      for (std::int64_t i = std::int64_t{at.block} * kThreads + at.thread; i < n; i += step)
        largest = Larger(largest, MagnitudeBits(Load(in, i)));
      shared.largest[at.thread] = largest;
    } else {
      if (at.thread != 0) return;
      for (const std::uint32_t one : shared.largest) largest = Larger(largest, one);
      AtomicMax(amax, largest);
    }
  }

  TensorSpan in;
  std::int64_t n;
  std::uint32_t* amax;

 private:
  ADA_HOST_DEVICE static std::uint32_t Larger(std::uint32_t a, std::uint32_t b) {
    return a > b ? a : b;
  }
};

// Two entries into the stream: the maximum is cleared, then joined by atomic operations.
inline void FindLargest(Stream& stream, const TensorSpan& in, std::int64_t n, std::uint32_t* amax) {
  constexpr std::int64_t kMostBlocks = 1024, kOfBlock = 4 * LargestValueKernel::kThreads;
  stream.Zero(reinterpret_cast<std::byte*>(amax), sizeof *amax);
  Launch(stream, LargestValueKernel{in, n, amax},
         static_cast<int>(std::min(kMostBlocks, (n + kOfBlock - 1) / kOfBlock)));
}

// The largest of the largest magnitudes of all processes. Body of ForEach over one.
struct LargestOfProcesses {
  ADA_HOST_DEVICE void operator()(std::int64_t) const {
    std::uint32_t largest = 0;
    for (int rank = 0; rank < ranks; ++rank) largest = all[rank] > largest ? all[rank] : largest;
    *amax = largest;
  }
  const std::uint32_t* all;
  int ranks;
  std::uint32_t* amax;
};

// The operand's per-tensor scale. Body of ForEach over one.
// On the device, since the host never sees the tensor's magnitude within a step.
struct SetCurrentScale {
  ADA_HOST_DEVICE void operator()(std::int64_t) const {
    scaler->scale = scaling::CurrentScale(rule, OfBits(*amax));
  }
  scaling::TensorScaleRule rule;
  scaling::TensorScaler* scaler;
  const std::uint32_t* amax;
};

}  // namespace ada::backend::cuda
