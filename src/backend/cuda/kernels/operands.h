// Other parts of the operands of matmuls: their Hadamard transform, and the current scale of their
// tensor.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "backend/cuda/kernels/rounding.h"
#include "backend/cuda/launch.h"
#include "backend/hadamard.h"
#include "scaling/rules/tensor_scale.h"

namespace ada::backend::cuda {

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
      HadamardInPlace(random ? RandomSigns(pass->seed ^ stream, pass->draw) : signs, values, 1, 1);
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
