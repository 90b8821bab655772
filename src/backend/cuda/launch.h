// Kernels, written once and run by two executors. A kernel is a struct of plain data:
//
//   struct SomeKernel {
//     static constexpr int kThreads = 256;      // of a block; a multiple of 32, at most 1024
//     static constexpr int kPhases = 2;         // no thread begins one before all ended the last
//     struct Shared { float sums[kThreads]; };  // __shared__ memory, of a block; no initializers
//     struct Own { float sum; };                // registers, of a thread, from phase to phase
//     template <int kPhase>
//     ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own& own) const;
//     template <int kPhase>                     // turns of a phase in a block; optional: one
//     ADA_HOST_DEVICE int Turns(const ThreadIndex& at) const;
//     ... arguments: numbers and pointers to backend memory, kMostArguments bytes at most ...
//   };
//
// Shared has at most 48 KiB. nvcc makes a __global__ function of the kernel; g++ runs it block by
// block, phase by phase, thread by thread, with Shared and Own full of NaN at first. Blocks must
// not depend on each other, but for the one that ends last (kernels/threads.h).
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <vector>

#include "backend/cuda/stream.h"
#include "backend/cuda/trace.h"
#include "number/host_device.h"
#ifndef __CUDACC__
#include <typeinfo>
#endif

namespace ada::backend::cuda {

// The position of one call of a kernel's phase in its launch.
struct ThreadIndex {
  int block = 0, thread = 0;  // this one, of the launch and of the block
  int blocks = 0;             // of the launch
  int turn = 0;               // of a phase that has several
};

// Runs `kernel` in `blocks` blocks, in the stream's order. No blocks: nothing happens.
template <class Kernel>
void Launch(Stream& stream, const Kernel& kernel, int blocks);

// body(i) for i in [0, n), each by some thread: Body is a struct of plain data whose call operator
// is const and ADA_HOST_DEVICE.
template <class Body>
void ForEach(Stream& stream, std::int64_t n, const Body& body);

// Only whole numbers are added: sums of floats would depend on the order.
ADA_HOST_DEVICE inline void AtomicAdd(std::int64_t* to, std::int64_t value);
ADA_HOST_DEVICE inline void AtomicAdd(std::uint32_t* to, std::uint32_t value);
ADA_HOST_DEVICE inline void AtomicMax(std::uint32_t* to, std::uint32_t value);
ADA_HOST_DEVICE inline void AtomicMin(std::uint32_t* to, std::uint32_t value);

// --- Both executors ---

inline constexpr std::size_t kMostArguments = 4096 - 32;  // a kernel's; Entry has two more

// The name of a kernel's type, as the compiler writes it; of a LastBlockKernel the first one's.
template <class Kernel>
constexpr std::string_view KernelName() {
  if constexpr (requires { typename Kernel::First; }) return KernelName<typename Kernel::First>();
  std::string_view text = __PRETTY_FUNCTION__;
  text = text.substr(text.find("Kernel = ") + 9);
  text = text.substr(0, text.find_first_of(";]"));
  const auto colon = text.substr(0, text.find('<')).rfind("::");
  return colon == std::string_view::npos ? text : text.substr(colon + 2);
}

// The same for all threads of a block.
template <int kPhase, class Kernel>
ADA_HOST_DEVICE int TurnsOf([[maybe_unused]] const Kernel& kernel,
                            [[maybe_unused]] const ThreadIndex& at) {
  if constexpr (requires { kernel.template Turns<kPhase>(at); })
    return kernel.template Turns<kPhase>(at);
  else
    return 1;
}

template <class Kernel>
TraceMark MarkOf(const Stream& stream) {
  if (stream.trace() == nullptr) return {};
  return stream.trace()->MarkOf(KernelName<Kernel>(), stream.traced_as());
}

#ifdef __CUDACC__

// Throws DeviceError where the launch just asked for was refused.
void CheckLaunch(std::string_view kernel);
// Whether the device's code of an Entry waits for the launch before it (sm_90 and newer), which it
// may be brought to the device ahead of then.
bool WaitsByItself(const void* entry);

template <int kPhase, class Kernel>
__device__ void RunPhases(const Kernel& kernel, ThreadIndex at, typename Kernel::Shared& shared,
                          typename Kernel::Own& own) {
  const int turns = TurnsOf<kPhase>(kernel, at);
  for (at.turn = 0; at.turn < turns; ++at.turn) {
    if (at.turn > 0) __syncthreads();
    kernel.template Run<kPhase>(at, shared, own);
  }
  if constexpr (kPhase + 1 < Kernel::kPhases) {
    __syncthreads();
    RunPhases<kPhase + 1>(kernel, at, shared, own);
  }
}

// early: the next launch may come to the device before this one's work, else after it. Whatever
// comes waits for the end of the one before, and with it of all that came before that.
template <class Kernel>
__global__ void __launch_bounds__(Kernel::kThreads)
    Entry(const __grid_constant__ Kernel kernel, const __grid_constant__ TraceMark mark,
          [[maybe_unused]] const bool early) {
#if __CUDA_ARCH__ >= 900
  if (early) cudaTriggerProgrammaticLaunchCompletion();
  cudaGridDependencySynchronize();
#endif
  __shared__ typename Kernel::Shared shared;
  __shared__ std::uint32_t traced;  // not a register, which a thread would keep all along
  if (mark.ring != nullptr && blockIdx.x == 0 && threadIdx.x == 0) traced = BeginTrace(mark);
  typename Kernel::Own own;
  const ThreadIndex at{static_cast<int>(blockIdx.x), static_cast<int>(threadIdx.x),
                       static_cast<int>(gridDim.x)};
  RunPhases<0>(kernel, at, shared, own);
  if (mark.ring != nullptr && blockIdx.x == 0 && threadIdx.x == 0) EndTrace(mark, traced);
#if __CUDA_ARCH__ >= 900
  if (!early) cudaTriggerProgrammaticLaunchCompletion();
#endif
}

template <class Kernel>
void Launch(Stream& stream, const Kernel& kernel, int blocks) {
  static_assert(std::is_trivially_copyable_v<Kernel> && sizeof(Kernel) <= kMostArguments);
  static_assert(Kernel::kThreads % 32 == 0 && Kernel::kThreads <= 1024);
  static_assert(sizeof(typename Kernel::Shared) <= 48 * 1024);
  if (blocks <= 0) return;
  using Pdl = CudaSwitches::Pdl;
  static const bool waits = WaitsByItself(reinterpret_cast<const void*>(&Entry<Kernel>));
  const Pdl pdl = stream.switches().pdl;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks)), config.blockDim = dim3(Kernel::kThreads);
  config.stream = stream.handle();
  config.attrs = &attribute, config.numAttrs = waits && pdl != Pdl::kOff ? 1 : 0;
  cudaLaunchKernelEx(&config, &Entry<Kernel>, kernel, MarkOf<Kernel>(stream), pdl == Pdl::kEarly);
  CheckLaunch(KernelName<Kernel>());
}

#else

template <int kPhase, class Kernel>
void RunPhases(const Kernel& kernel, ThreadIndex at, typename Kernel::Shared& shared,
               std::vector<typename Kernel::Own>& own, bool reverse) {
  const int turns = TurnsOf<kPhase>(kernel, at);
  for (at.turn = 0; at.turn < turns; ++at.turn)
    for (int i = 0; i < Kernel::kThreads; ++i) {
      at.thread = reverse ? Kernel::kThreads - 1 - i : i;
      kernel.template Run<kPhase>(at, shared, own[static_cast<std::size_t>(at.thread)]);
    }
  if constexpr (kPhase + 1 < Kernel::kPhases)
    RunPhases<kPhase + 1>(kernel, at, shared, own, reverse);
}

template <class Kernel>
void RunBlocks(const Kernel& kernel, int blocks, bool reverse) {
  using Shared = typename Kernel::Shared;
  using Own = typename Kernel::Own;
  static_assert(std::is_trivially_default_constructible_v<Shared>);
  Shared shared;
  std::vector<Own> own(static_cast<std::size_t>(Kernel::kThreads));
  for (int i = 0; i < blocks; ++i) {
    std::memset(static_cast<void*>(&shared), 0xff, sizeof shared);
    if constexpr (std::is_trivially_default_constructible_v<Own>)
      std::memset(static_cast<void*>(own.data()), 0xff, own.size() * sizeof(Own));
    else
      std::fill(own.begin(), own.end(), Own());
    const int block = reverse ? blocks - 1 - i : i;
    RunPhases<0>(kernel, ThreadIndex{block, 0, blocks}, shared, own, reverse);
  }
}

// Appends the name of a kernel's type to the file that ADA_KERNEL_TRACE names, if it does: a test
// compares the kernels that were launched with all that there are. Returns true.
bool NoteKernel(const std::type_info& kernel);

template <class Kernel>
void Launch(Stream& stream, const Kernel& kernel, int blocks) {
  static_assert(std::is_trivially_copyable_v<Kernel> && sizeof(Kernel) <= kMostArguments);
  static_assert(Kernel::kThreads % 32 == 0 && Kernel::kThreads <= 1024);
  static_assert(sizeof(typename Kernel::Shared) <= 48 * 1024);
  if (blocks <= 0) return;
  [[maybe_unused]] static const bool noted = NoteKernel(typeid(Kernel));
  stream.Run(KernelName<Kernel>(), [kernel, blocks, mark = MarkOf<Kernel>(stream)](bool reverse) {
    const std::uint32_t place = mark.ring != nullptr ? BeginTrace(mark) : 0;
    RunBlocks(kernel, blocks, reverse);
    if (mark.ring != nullptr) EndTrace(mark, place);
  });
}

#endif

// body(i) for the values of a launch, each thread every so many.
template <class Body>
struct ForEachKernel {
  static constexpr int kThreads = 256;
  static constexpr int kPhases = 1;
  struct Shared {};
  struct Own {};
  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared&, Own&) const {
    const std::int64_t step = static_cast<std::int64_t>(at.blocks) * kThreads;
    for (std::int64_t i = static_cast<std::int64_t>(at.block) * kThreads + at.thread; i < n;
         i += step)
      body(i);
  }
  int Blocks() const {
    constexpr std::int64_t kMostBlocks = 4096;
    return static_cast<int>(std::min(kMostBlocks, (n + kThreads - 1) / kThreads));
  }
  Body body;
  std::int64_t n;
};

template <class Body>
void ForEach(Stream& stream, std::int64_t n, const Body& body) {
  const ForEachKernel<Body> kernel{body, n};
  Launch(stream, kernel, kernel.Blocks());
}

#ifdef __CUDA_ARCH__
ADA_HOST_DEVICE inline void AtomicAdd(std::int64_t* to, std::int64_t value) {
  atomicAdd(reinterpret_cast<unsigned long long*>(to), static_cast<unsigned long long>(value));
}
ADA_HOST_DEVICE inline void AtomicAdd(std::uint32_t* to, std::uint32_t value) {
  atomicAdd(to, value);
}
ADA_HOST_DEVICE inline void AtomicMax(std::uint32_t* to, std::uint32_t value) {
  atomicMax(to, value);
}
ADA_HOST_DEVICE inline void AtomicMin(std::uint32_t* to, std::uint32_t value) {
  atomicMin(to, value);
}
#else
ADA_HOST_DEVICE inline void AtomicAdd(std::int64_t* to, std::int64_t value) { *to += value; }
ADA_HOST_DEVICE inline void AtomicAdd(std::uint32_t* to, std::uint32_t value) { *to += value; }
ADA_HOST_DEVICE inline void AtomicMax(std::uint32_t* to, std::uint32_t value) {
  *to = std::max(*to, value);
}
ADA_HOST_DEVICE inline void AtomicMin(std::uint32_t* to, std::uint32_t value) {
  *to = std::min(*to, value);
}
#endif

}  // namespace ada::backend::cuda
