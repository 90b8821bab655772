// What is measured of a machine, and how: every thread does the same work at the same time, several
// times over; the rate is that of the best time, in which all of them had ended.
#pragma once
#include <functional>

namespace ada::bench {

// Calls `work` at once in so many threads, `times` times with a pause for all of them between; the
// shortest time, in seconds, from the first start to the last end.
double BestSeconds(int threads, int times, const std::function<void(int thread)>& work);

// GFLOP/s of fp32 fused multiply-adds (multiplication and addition where the processor has no
// FMA), in the widest registers there are. What ADA_ISA forbids to ada-train counts as missing here
// and below.
double MeasureFma(int threads);
// GFLOP/s of AVX-512's bf16 products, two a lane, summed in fp32; 0: the processor has none.
double MeasurePairs(int threads);
// GFLOP/s of bf16 tile products summed in fp32; 0: no AMX, or the kernel does not permit it.
double MeasureAmx(int threads);

// GB/s from arrays of 16 MiB, far larger than a core's own caches.
struct MemoryRates {
  double read = 0;
  double copy = 0;  // bytes read and bytes written together
};
MemoryRates MeasureMemory(int threads);

}  // namespace ada::bench
