// A kernel whose last block goes on with another one, and lanes of a warp joined: on the host
// executor, forwards and backwards.
#ifndef ADA_CUDA_DEVICE
#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <vector>

#include "backend/cuda/kernels/threads.h"
#include "backend/values.h"
#include "cuda/host/host_stream.h"

namespace ada::backend::cuda {
namespace {

template <class T>
T* Make(Stream& stream, std::size_t count) {
  return reinterpret_cast<T*>(stream.AllocateZeroed(count * sizeof(T)));
}

// Writes the block's number plus one.
struct Numbers {
  static constexpr int kThreads = 64, kPhases = 2;
  struct Shared {
    std::int64_t number;
  };
  struct Own {};
  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own&) const {
    if constexpr (kPhase == 0)
      if (at.thread == 0) shared.number = at.block + 1;
    if constexpr (kPhase == 1)
      if (at.thread == 5) to[at.block] = shared.number;
  }
  std::int64_t* to;
};
// Adds up what blocks of its column wrote, and counts how often it ran.
struct ColumnSums {
  static constexpr int kThreads = 32, kPhases = 2;
  struct Shared {
    std::int64_t sum;
  };
  struct Own {
    std::int64_t none;
  };
  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own&) const {
    if (at.thread != 31) return;
    if constexpr (kPhase == 0) {
      shared.sum = 0;
      for (int i = at.block; i < count; i += at.blocks) shared.sum += from[i];
    } else {
      sums[at.block] = shared.sum;
      runs[at.block] += 1;
    }
  }
  const std::int64_t* from;
  int count;
  std::int64_t *sums, *runs;
};

// The launch that a LastBlockKernel stands for is done twice, with fewer blocks the second time.
void CheckColumns(bool reverse, int columns) {
  CAPTURE(reverse);
  CAPTURE(columns);
  HostStream stream;
  stream.set_reverse(reverse);
  auto* numbers = Make<std::int64_t>(stream, 24);
  auto* sums = Make<std::int64_t>(stream, 4);
  auto* runs = Make<std::int64_t>(stream, 4);
  auto* finished = Make<std::uint32_t>(stream, 4);
  int time = 0;
  for (const int blocks : {24, 12, 12}) {
    ++time;
    const ColumnSums then{numbers, blocks, sums, runs};
    Launch(stream, LastBlockKernel<Numbers, ColumnSums>{{numbers}, then, finished, columns},
           blocks);
    for (int column = 0; column < columns; ++column) {
      std::int64_t sum = 0;
      for (int i = column; i < blocks; i += columns) sum += i + 1;
      CHECK(sums[column] == sum);
      CHECK(runs[column] == time);
      CHECK(finished[column] == 0);
    }
  }
}

// Notes which of its phases ran in which block of how many.
template <int kSteps, int kOfThreads>
struct Steps {
  static constexpr int kThreads = kOfThreads, kPhases = kSteps;
  struct Shared {
    std::int64_t before;
  };
  struct Own {};
  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own&) const {
    if (at.thread != kThreads - 1) return;
    if constexpr (kPhase == 0) shared.before = 100 * at.block + at.blocks;
    if constexpr (kPhase + 1 == kPhases) to[at.block] = 10 * shared.before + kPhases;
  }
  std::int64_t* to;
};
template <class Kernel>
std::vector<std::int64_t> Alone(int blocks) {
  HostStream stream;
  auto* to = Make<std::int64_t>(stream, 8);
  Launch(stream, Kernel{to}, blocks);
  return {to, to + 8};
}

// What lane 0 of each group of 16 gets of 64 threads: their numbers as text, in order.
struct Chain {
  static constexpr int kThreads = 64, kPhases = 2;
  struct Shared {
    float of[kThreads];
  };
  struct Own {};
  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own&) const {
    if constexpr (kPhase == 0) {
      shared.of[at.thread] = in[at.thread];
      return;
    }
    const int first = at.thread / 16 * 16;
    const float all = JoinLanes<16>(
        at.thread % 16, [&](int lane) { return shared.of[first + lane]; },
        [](float a, float b) { return a + b; });
    if (at.thread % 16 == 0) out[at.thread / 16] = all;
  }
  const float* in;
  float* out;
};

TEST_SUITE("cpu") {
  TEST_CASE("the last block of each column goes on, once, and leaves the counter as it was") {
    for (const bool reverse : {false, true})
      for (const int columns : {1, 2, 4}) CheckColumns(reverse, columns);
  }

  TEST_CASE("without counters nothing comes after a kernel") {
    HostStream stream;
    auto* numbers = Make<std::int64_t>(stream, 6);
    const ColumnSums then{numbers, 6, nullptr, nullptr};
    Launch(stream, LastBlockKernel<Numbers, ColumnSums>{{numbers}, then, nullptr, 2}, 6);
    CHECK(numbers[5] == 6);
  }

  TEST_CASE("kernels side by side do what each does alone") {
    using A = Steps<2, 64>;
    using B = Steps<3, 32>;
    for (const bool fused : {false, true})
      for (const bool reverse : {false, true}) {
        CudaSwitches switches;
        switches.fused = fused;
        HostStream stream(switches);
        stream.set_reverse(reverse);
        stream.KeepNames();
        std::int64_t* to[3];
        FusedKernels<A, 3> all;
        const int blocks[3] = {5, 0, 3};
        for (int k = 0; k < 3; ++k) {
          to[k] = Make<std::int64_t>(stream, 8);
          all.Add({to[k]}, blocks[k]);
        }
        LaunchFused(stream, all);
        CHECK(stream.TakeNames().size() == (fused ? 1 : 2));
        for (int k = 0; k < 3; ++k)
          CHECK(std::vector<std::int64_t>(to[k], to[k] + 8) == Alone<A>(blocks[k]));
      }
    for (const bool reverse : {false, true}) {
      HostStream stream;
      stream.set_reverse(reverse);
      auto *a = Make<std::int64_t>(stream, 8), *b = Make<std::int64_t>(stream, 8);
      Launch(stream, FusedPair<A, B>{{a}, {b}, 4}, 4 + 2);
      CHECK(std::vector<std::int64_t>(a, a + 8) == Alone<A>(4));
      CHECK(std::vector<std::int64_t>(b, b + 8) == Alone<B>(2));
    }
  }

  TEST_CASE("kernels in the same blocks run one after the other") {
    using First = Steps<2, 64>;
    using Second = Steps<3, 64>;
    for (const bool reverse : {false, true}) {
      HostStream stream;
      stream.set_reverse(reverse);
      auto *a = Make<std::int64_t>(stream, 8), *b = Make<std::int64_t>(stream, 8);
      Launch(stream, FusedPhases<First, Second>{{a}, {b}}, 6);
      CHECK(std::vector<std::int64_t>(a, a + 8) == Alone<First>(6));
      CHECK(std::vector<std::int64_t>(b, b + 8) == Alone<Second>(6));
    }
  }

  TEST_CASE("lanes are joined in their order") {
    for (const bool reverse : {false, true}) {
      HostStream stream;
      stream.set_reverse(reverse);
      auto* in = Make<float>(stream, 64);
      auto* out = Make<float>(stream, 4);
      const test::Values random = test::Normal(64, 1, 3);
      std::memcpy(in, random.data(), sizeof(float) * random.size());
      Launch(stream, Chain{in, out}, 1);
      for (std::size_t group = 0; group < 4; ++group) {
        float sum = random[16 * group];
        for (std::size_t k = 1; k < 16; ++k) sum += random[16 * group + k];
        CHECK(out[group] == sum);
      }
    }
  }
}

}  // namespace
}  // namespace ada::backend::cuda
#endif
