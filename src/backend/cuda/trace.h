// When each launch ran, noted by its first block while it runs, in graphs too (ADA_CUDA_TRACE):
// what lies between two launches is libraries' work, copies, or nobody's.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "backend/cuda/stream.h"
#include "number/host_device.h"
#ifndef __CUDACC__
#include <chrono>
#endif

namespace ada::backend::cuda {

// One launch. Times are in nanoseconds, of a clock that all launches share.
struct TraceEntry {
  std::uint64_t begin, end;     // of the first block
  std::int32_t kernel, stream;  // kernel: a number of Trace::names
};
// In backend memory: the last kEntries launches, in the order in which they began.
struct TraceRing {
  static constexpr std::uint32_t kEntries = 1 << 16;
  std::uint32_t begun;  // launches so far, modulo 2^32
  std::uint32_t none;
  TraceEntry entries[kEntries];
};

// What a launch is noted as. ring null: it is not.
struct TraceMark {
  TraceRing* ring = nullptr;
  std::int32_t kernel = 0, stream = 0;
};

ADA_HOST_DEVICE inline std::uint64_t TraceClock() {
#ifdef __CUDA_ARCH__
  std::uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
#elif !defined(__CUDACC__)
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch() /
                                    std::chrono::nanoseconds(1));
#else
  return 0;
#endif
}
// One thread of the first block calls both; returns the launch's place in the ring.
ADA_HOST_DEVICE inline std::uint32_t BeginTrace(const TraceMark& mark) {
#ifdef __CUDA_ARCH__
  const std::uint32_t place = atomicAdd(&mark.ring->begun, 1u) % TraceRing::kEntries;
#else
  const std::uint32_t place = mark.ring->begun++ % TraceRing::kEntries;
#endif
  mark.ring->entries[place] = {TraceClock(), 0, mark.kernel, mark.stream};
  return place;
}
ADA_HOST_DEVICE inline void EndTrace(const TraceMark& mark, std::uint32_t place) {
  mark.ring->entries[place].end = TraceClock();
}

// The ring of one backend and the names of its kernels.
class Trace {
 public:
  // Launches in `stream` are noted from now on, unless `path` is empty.
  Trace(Stream& stream, const std::string& path);
  // Writes what was noted to `path`: a line a launch, by tabs (tools/bench/timeline.py reads it).
  ~Trace();
  Trace(const Trace&) = delete;

  TraceMark MarkOf(std::string_view kernel, int stream);

 private:
  Stream& stream_;
  std::string path_;
  TraceRing* ring_ = nullptr;
  std::map<std::string, std::int32_t, std::less<>> numbers_;  // of names
  std::vector<std::string> names_;
};

}  // namespace ada::backend::cuda
