// A kernel whose last block goes on with another one, and lanes of a warp joined: on the host
// executor, forwards and backwards.
#ifndef ADA_CUDA_DEVICE
#include "backend/cuda/kernels/last_block.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "backend/cuda/host/host_stream.h"
#include "backend/cuda/kernels/channel_totals.h"
#include "backend/cuda/kernels/join_lanes.h"
#include "backend/values.h"

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

// Random sums over parts of batch norms, and memory for what becomes of them.
struct Parts {
  Parts(HostStream& stream, std::int64_t channels, std::int64_t parts)
      : cut(channels, std::max<std::int64_t>(parts * PixelParts(channels, 1000).part_pixels, 129)),
        count(parts) {
    for (float*& of : sums) {
      of = Make<float>(stream, static_cast<std::size_t>(channels * parts));
      const test::Values random =
          test::Normal(static_cast<std::size_t>(channels * parts), 1, 7 + (of == sums[1] ? 1 : 0));
      std::memcpy(of, random.data(), random.size() * sizeof(float));
      for (std::size_t i = 0; of == sums[1] && i < random.size(); ++i) of[i] = std::fabs(of[i]);
    }
  }
  // What `launch(of)` makes of them, as bytes of six vectors.
  template <class Of, class LaunchOf>
  std::vector<float> Results(HostStream& stream, LaunchOf&& launch) const {
    const auto c = static_cast<std::size_t>(cut.channels);
    float* all = Make<float>(stream, 6 * c);
    for (std::size_t i = 0; i < 6 * c; ++i) all[i] = 1 + 0.01f * static_cast<float>(i);
    launch(Made(all, static_cast<Of*>(nullptr)));
    return {all, all + 6 * c};
  }
  BatchStatistics Made(float* all, BatchStatistics*) const {
    const std::int64_t c = cut.channels;
    BatchStatistics of;
    of.cut = cut, of.parts = count;
    of.pixels = (count - 1) * cut.part_pixels + 3;
    of.part_mean = sums[0], of.part_m2 = sums[1];
    of.to = {all, all + c, all + 2 * c, all + 3 * c, 1e-5};
    of.running_mean = all + 4 * c, of.running_var = all + 5 * c;
    of.momentum = 0.1;
    return of;
  }
  ReduceGradient Made(float* all, ReduceGradient*) const {
    const std::int64_t c = cut.channels;
    ReduceGradient of;
    of.channels = c, of.parts = count, of.pixels = count * cut.part_pixels;
    of.sum_dy = sums[0], of.sum_dy_xhat = sums[1];
    of.inverse = all, of.scale = all + c;
    of.mean_dy = all + 2 * c, of.slope = all + 3 * c;
    of.dgamma = all + 4 * c, of.dbeta = all + 5 * c;
    of.accumulate = true;
    return of;
  }

  PixelParts cut;
  std::int64_t count;
  float* sums[2] = {};
};

template <class Of>
void CheckTotals(std::int64_t channels, std::int64_t parts) {
  CAPTURE(channels);
  CAPTURE(parts);
  using Totals = ChannelTotalsKernel<Of, 128>;
  const auto columns = static_cast<int>((channels + 63) / 64);
  for (const bool reverse : {false, true}) {
    HostStream stream;
    stream.set_reverse(reverse);
    const Parts of(stream, channels, parts);
    const auto alone = of.Results<Of>(
        stream, [&](const Of& kernel) { Launch(stream, kernel, ChannelLanes::Blocks(channels)); });
    const auto last =
        of.Results<Of>(stream, [&](const Of& kernel) { Launch(stream, Totals{kernel}, columns); });
    CHECK(std::memcmp(alone.data(), last.data(), alone.size() * sizeof(float)) == 0);
    CHECK(stream.guards_intact());
  }
}

TEST_SUITE("cpu") {
  TEST_CASE("the last block of each column goes on, once, and leaves the counter as it was") {
    for (const bool reverse : {false, true})
      for (const int columns : {1, 2, 4}) CheckColumns(reverse, columns);
  }

  TEST_CASE("without counters nothing is behind a kernel") {
    HostStream stream;
    auto* numbers = Make<std::int64_t>(stream, 6);
    const ColumnSums then{numbers, 6, nullptr, nullptr};
    Launch(stream, LastBlockKernel<Numbers, ColumnSums>{{numbers}, then, nullptr, 2}, 6);
    CHECK(numbers[5] == 6);
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

  TEST_CASE("a batch norm's channels: the last block's sums are those of a launch of its own") {
    for (const std::int64_t channels : {1, 3, 16, 64, 100, 128})
      for (const std::int64_t parts : {1, 5, 31, 32, 33, 64, 257}) {
        CheckTotals<BatchStatistics>(channels, parts);
        CheckTotals<ReduceGradient>(channels, parts);
      }
  }
}

}  // namespace
}  // namespace ada::backend::cuda
#endif
