// Kernels, written once and run by two executors. A kernel is a struct of plain data:
//
//   struct SomeKernel {
//     static constexpr int kThreads = 256;      // of a block; a multiple of 32, at most 1024
//     static constexpr int kPhases = 2;         // no thread begins one before all ended the last
//     struct Shared { float sums[kThreads]; };  // of a block, no initialisers; at most 48 KiB
//     struct Own { float sum; };                // of a thread, from phase to phase: registers
//     template <int kPhase>
//     ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own& own) const;
//     ... arguments: numbers and pointers to backend memory, 4 KiB at most ...
//   };
//
// nvcc makes a __global__ function of it; g++ runs it block by block, phase by phase, thread by
// thread, with Shared and Own full of NaN at first. Blocks must not depend on each other.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <vector>

#include "backend/cuda/launch_check.h"
#include "backend/cuda/stream.h"
#include "backend/cuda/thread_index.h"
#include "core/host_device.h"

namespace ada::backend::cuda {

// Runs `kernel` in `blocks` blocks, in the stream's order. No blocks: nothing happens.
template <class Kernel>
void Launch(Stream& stream, const Kernel& kernel, int blocks);

// body(i) for i in [0, n), each by some thread: Body is a struct of plain data whose call operator
// is const and ADA_HOST_DEVICE.
template <class Body>
void ForEach(Stream& stream, std::int64_t n, const Body& body);

// Of whole numbers alone: sums of floats would depend on the order.
ADA_HOST_DEVICE inline void AtomicAdd(std::int64_t* to, std::int64_t value);
ADA_HOST_DEVICE inline void AtomicAdd(std::uint32_t* to, std::uint32_t value);
ADA_HOST_DEVICE inline void AtomicMax(std::uint32_t* to, std::uint32_t value);
ADA_HOST_DEVICE inline void AtomicMin(std::uint32_t* to, std::uint32_t value);

}  // namespace ada::backend::cuda

#include "backend/cuda/launch_inline.h"
