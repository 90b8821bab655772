// The exponents of a data gradient that exact_range looks at: counted by whole numbers alone.
#pragma once
#include <cstdint>

#include "backend/cuda/kernels/last_block.h"
#include "backend/cuda/kernels/tensor_span.h"
#include "backend/cuda/launch.h"
#include "number/host_device.h"
#include "scaling/rules/rules.h"

namespace ada::backend::cuda {

// An observation, by one launch or by one of several processes.
struct TailPart {
  std::uint32_t bins[scaling::ExponentTail::kBins];
  std::uint32_t nonzero, max_bits;
};

// Totals over all blocks; zero between launches.
// In backend memory, one for each layer with exact_range.
struct TailTotals {
  TailPart all;
  std::uint32_t finished;
};

// Computes the tail of value(i) for all values (see round_values.h for Value), only if the
// layer's scaler wants that of this pass, and after its decision. The result is stored unless
// some value is not finite, or written to `part` to be joined with that of other processes. It
// uses dx before alpha, which this pass's decision has chosen already: the tail is for the next
// pass.
template <class Value>
struct TailKernel {
  static constexpr int kThreads = scaling::ExponentTail::kBins, kPhases = 7;
  static constexpr int kLanes = 16;  // threads that join the others' counts
  struct Shared {
    std::uint32_t bins[kThreads], nonzero[kThreads], max_bits[kThreads];
    std::uint32_t is_wanted, is_last;
  };
  struct Own {};
  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own&) const {
    const int t = at.thread;
    if constexpr (kPhase == 0) {
      shared.bins[t] = 0;
      if (t == 0) shared.is_wanted = scaling::WantsTail(*scaler) ? 1 : 0;
      return;
    }
    if (shared.is_wanted == 0 || (kPhase >= 5 && shared.is_last == 0)) return;
    if constexpr (kPhase == 1) CountBlock(at, shared);
    if constexpr (kPhase == 2)
      if (t < kLanes) Join(shared, t, kLanes, kThreads);
    if constexpr (kPhase == 3) WriteBlock(t, shared);
    if constexpr (kPhase == 4)
      if (t == 0)
        shared.is_last = TakeTicket(&totals->finished) + 1 == static_cast<std::uint32_t>(at.blocks);
    if constexpr (kPhase == 5) HandOver(t);
    if constexpr (kPhase == 6)
      if (t == 0) totals->all.nonzero = totals->all.max_bits = totals->finished = 0;
  }

  scaling::LayerScaler* scaler;
  Value value;
  std::int64_t values, size;  // of all, of a block
  TailTotals* totals;
  TailPart* part;  // null: this process is alone

 private:
  // Bins are the exponents of fp32.
  ADA_HOST_DEVICE void CountBlock(const ThreadIndex& at, Shared& shared) const {
    const std::int64_t begin = at.block * size;
    const std::int64_t end = begin + size < values ? begin + size : values;
    std::uint32_t nonzero = 0, largest = 0;
    for (std::int64_t i = begin + at.thread; i < end; i += kThreads) {
      const std::uint32_t u = MagnitudeBits(value(i));
      nonzero += u != 0;
      largest = u > largest ? u : largest;
      if (u != 0) AtomicAdd(&shared.bins[u >> 23], 1u);
    }
    shared.nonzero[at.thread] = nonzero, shared.max_bits[at.thread] = largest;
  }
  static ADA_HOST_DEVICE void Join(Shared& shared, int first, int step, int end) {
    for (int k = first + step; k < end; k += step) {
      shared.nonzero[first] += shared.nonzero[k];
      if (shared.max_bits[k] > shared.max_bits[first]) shared.max_bits[first] = shared.max_bits[k];
    }
  }
  ADA_HOST_DEVICE void WriteBlock(int thread, Shared& shared) const {
    if (shared.bins[thread] != 0) AtomicAdd(&totals->all.bins[thread], shared.bins[thread]);
    if (thread != 0) return;
    Join(shared, 0, 1, kLanes);
    AtomicAdd(&totals->all.nonzero, shared.nonzero[0]);
    AtomicMax(&totals->all.max_bits, shared.max_bits[0]);
  }
  // A bin by each thread; the first one tells the rest.
  // All threads read max_bits here, which is why it is zeroed one phase later.
  ADA_HOST_DEVICE void HandOver(int thread) const {
    TailPart& all = totals->all;
    const bool finite = all.max_bits < kInfinityBits;
    if (part != nullptr)
      part->bins[thread] = all.bins[thread];
    else if (finite)
      scaler->state.tail.bins[thread] = all.bins[thread];
    all.bins[thread] = 0;
    if (thread != 0) return;
    if (part != nullptr)
      part->nonzero = all.nonzero, part->max_bits = all.max_bits;
    else if (finite)
      scaling::FinishTail(*scaler, all.nonzero, static_cast<double>(OfBits(all.max_bits)));
  }
};

}  // namespace ada::backend::cuda
