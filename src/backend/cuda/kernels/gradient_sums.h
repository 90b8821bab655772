// Sums over processes of tensors that are divided into segments, one per block of threads: packing
// for sending, sums of the received parts in the order of processes, and storing.
#pragma once
#include <cstdint>

#include "backend/cuda/kernels/rounding.h"
#include "backend/cuda/kernels/tensor_span.h"
#include "backend/cuda/launch.h"
#include "number/stats.h"

namespace ada::backend::cuda {

// A span of one tensor, and where it lies in its bucket, or slice of one.
// Tables of segments lie in backend memory and stay the same for a whole run.
struct SumSegment {
  static constexpr std::int64_t kValues = 4096;
  float* values;  // null: of a slice
  std::int64_t at;
  std::int32_t count;
};

// What is counted where values are rounded for the way. Sums are in double, in the order of threads
// and then of segments.
// The same counts as on the host (parallel/gradient_sums.cpp), for rows of the tensor `sent`.
struct TransportCounts {
  std::int64_t values, zeros, underflow, below_min, subnormal, overflow, inf, nan;
  double sum, square, l1;
  std::uint32_t max_bits, min_bits;  // of magnitudes; min_bits: of those not 0, minus 1

  ADA_HOST_DEVICE static TransportCounts Start() {
    return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xffffffffu};
  }
  ADA_HOST_DEVICE void Add(const NumberGrid& grid, float before, float after) {
    const std::uint32_t u = MagnitudeBits(before), r = MagnitudeBits(after);
    const double d = before;
    values += 1, zeros += u == 0;
    underflow += u != 0 && u <= kInfinityBits && r == 0;
    below_min += u == 0 || u < grid.below_min;
    subnormal += r != 0 && r < grid.min_normal;
    overflow += u >= grid.overflow_min && u < kInfinityBits;
    inf += u == kInfinityBits, nan += u > kInfinityBits;
    sum += d, square += d * d, l1 += d < 0 ? -d : d;
    max_bits = max_bits < u ? u : max_bits;
    if (u < kInfinityBits) min_bits = min_bits < u - 1 ? min_bits : u - 1;
  }
  ADA_HOST_DEVICE void Merge(const TransportCounts& of) {
    values += of.values, zeros += of.zeros;
    underflow += of.underflow, below_min += of.below_min, subnormal += of.subnormal;
    overflow += of.overflow, inf += of.inf, nan += of.nan;
    sum += of.sum, square += of.square, l1 += of.l1;
    max_bits = max_bits < of.max_bits ? of.max_bits : max_bits;
    min_bits = min_bits < of.min_bits ? min_bits : of.min_bits;
  }
};

// The counts of a block, and which values its threads take.
struct TransportBlock {
  static constexpr int kThreads = 256;
  TransportCounts threads[kThreads];

  ADA_HOST_DEVICE TransportCounts Merged() const {
    TransportCounts all = TransportCounts::Start();
    for (const TransportCounts& of : threads) all.Merge(of);
    return all;
  }
};

// How values travel: as they are, or rounded to 16 bits.
struct Transport {
  Storage storage = Storage::kF32;
  NumberGrid grid;
  ADA_HOST_DEVICE bool narrow() const { return storage != Storage::kF32; }
  ADA_HOST_DEVICE float Rounded(float value, TransportCounts& counts) const {
    if (!narrow()) return value;
    const float rounded = RoundToGrid(grid, value);
    counts.Add(grid, value, rounded);
    return rounded;
  }
};

// to = round(source), with what is lost on the way. `source(segment, i, narrow)`: value i of a
// segment; narrow: what is sent is rounded.
// Used twice: with a process's own values before they are sent, and with the sum of all parts
// before that goes to all.
template <class Source>
struct RoundSegments {
  static constexpr int kThreads = TransportBlock::kThreads, kPhases = 2;
  using Shared = TransportBlock;
  struct Own {};
  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own&) const {
    if constexpr (kPhase == 0) {
      const SumSegment& s = segments[at.block];
      TransportCounts own = TransportCounts::Start();
      for (std::int32_t i = at.thread; i < s.count; i += kThreads)
        StoreExact(to, s.at + i, transport.Rounded(source(s, i, transport.narrow()), own));
      if (counts != nullptr) shared.threads[at.thread] = own;
    } else if (counts != nullptr && at.thread == 0) {
      counts[at.block] = shared.Merged();
    }
  }

  const SumSegment* segments = nullptr;
  Transport transport;
  Source source;
  TensorSpan to;
  TransportCounts* counts = nullptr;  // [segments]; null: nothing is rounded
};

// A process's own values: multiplied by the loss scale if they are rounded, and by its share if the
// result is a mean.
struct OwnValues {
  ADA_HOST_DEVICE float operator()(const SumSegment& s, std::int32_t i, bool narrow) const {
    return s.values[i] * (mean ? pass->share : narrow ? pass->loss_scale : 1);
  }

  bool mean = false;
  const PassValues* pass = nullptr;
};

// part 0 + part 1 + ..., the parts of one slice: `slice` values from each process.
struct SumOfParts {
  // As on a CPU: codes are added to 0.
  ADA_HOST_DEVICE float operator()(const SumSegment& s, std::int32_t i, bool narrow) const {
    const std::int64_t at = s.at + i;
    float total = Load(parts, at);
    if (narrow) total = 0.0f + total;
    for (int rank = 1; rank < ranks; ++rank) total = total + Load(parts, rank * slice + at);
    return total;
  }

  int ranks = 0;
  std::int64_t slice = 0;
  TensorSpan parts;
};

// values = sums, without the loss's scale where they were rounded.
// The last step: the sum of all processes becomes the gradient.
struct StoreSegments {
  static constexpr int kThreads = 256, kPhases = 1;
  struct Shared {};
  struct Own {};
  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared&, Own&) const {
    const SumSegment& s = segments[at.block];
    const float factor = narrow ? pass->loss_scale : 1;
    for (std::int32_t i = at.thread; i < s.count; i += kThreads)
      s.values[i] = Load(sums, s.at + i) / factor;
  }

  const SumSegment* segments = nullptr;
  bool narrow = false;
  const PassValues* pass = nullptr;
  TensorSpan sums;
};

}  // namespace ada::backend::cuda
