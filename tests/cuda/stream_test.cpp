// What a stream promises, on whatever executes it: phases, launches that follow each other, a last
// block that goes on with another kernel, lanes that are joined, recordings, a side, memory. With
// all that switches change of how a device does it.
#include "backend/cuda/stream.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

#include "backend/cuda/kernels/threads.h"
#include "backend/cuda/launch.h"
#include "cuda/on_both.h"
#include "cuda/stream_lab.h"

namespace ada::backend::test {

// Kernels are of a named namespace: nvcc gives functions of unnamed ones names of their own.
namespace stream_kernels {

using cuda::ThreadIndex;

// The sum of each block's values, as a tree over phases.
struct TreeSum {
  static constexpr int kThreads = 64, kPhases = 8;
  struct Shared {
    std::int64_t sums[kThreads];
  };
  struct Own {
    std::int64_t value;
  };
  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own& own) const {
    if constexpr (kPhase == 0) {
      own.value = in[at.block * kThreads + at.thread];
      shared.sums[at.thread] = own.value;
    } else if constexpr (kPhase < 7) {
      if (at.thread >= kThreads >> kPhase) return;
      own.value += shared.sums[at.thread + (kThreads >> kPhase)];
      shared.sums[at.thread] = own.value;
    } else if (at.thread == 0) {
      out[at.block] = shared.sums[0] + at.blocks;
    }
  }
  const std::int64_t* in;
  std::int64_t* out;
};

// Values of a block's threads move on by one thread, block % 4 times: in two turns each.
struct Rotation {
  static constexpr int kThreads = 64, kPhases = 3;
  struct Shared {
    std::int64_t values[kThreads];
  };
  struct Own {
    std::int64_t value;
  };
  template <int kPhase>
  ADA_HOST_DEVICE int Turns(const ThreadIndex& at) const {
    return kPhase == 1 ? at.block % 4 * 2 : 1;
  }
  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own& own) const {
    const int i = at.block * kThreads + at.thread;
    if constexpr (kPhase == 0)
      own.value = in[i];
    else if constexpr (kPhase == 2)
      out[i] = own.value;
    else if (at.turn % 2 == 0)
      shared.values[at.thread] = own.value;
    else
      own.value = shared.values[(at.thread + 1) % kThreads] + at.turn;
  }
  const std::int64_t* in;
  std::int64_t* out;
};

// Each block reads what another block of the launch before has written, and only its last phase
// writes.
struct Shift {
  static constexpr int kThreads = 32, kPhases = 2;
  struct Shared {
    std::int64_t value;
  };
  struct Own {};
  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own&) const {
    if (at.thread != 0) return;
    if constexpr (kPhase == 0)
      shared.value = in[(at.block * 7 + 3) % at.blocks];
    else
      out[at.block] = 3 * shared.value + 1;
  }
  const std::int64_t* in;
  std::int64_t* out;
};

// Adds up what the blocks of its column wrote.
struct ColumnSums {
  static constexpr int kThreads = 32, kPhases = 1;
  struct Shared {};
  struct Own {};
  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared&, Own&) const {
    if (at.thread != 31) return;
    std::int64_t sum = 0;
    for (int i = at.block; i < count; i += at.blocks) sum += from[i];
    sums[at.block] += sum;
  }
  const std::int64_t* from;
  int count;
  std::int64_t* sums;
};

// Lanes joined in an order that shows, each group as often as its number says, so that groups of
// one warp part ways.
template <int kLanes>
struct OrderOfLanes {
  static constexpr int kThreads = 128, kPhases = 1, kGroups = kThreads / kLanes;
  struct Shared {};
  struct Own {};
  // Sums wrap around, as unsigned ones may.
  static ADA_HOST_DEVICE std::int64_t Joined(std::int64_t a, std::int64_t b) {
    return static_cast<std::int64_t>(3 * static_cast<std::uint64_t>(a) +
                                     static_cast<std::uint64_t>(b));
  }
  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared&, Own&) const {
    const int lane = at.thread % kLanes, group = at.block * kGroups + at.thread / kLanes;
    std::int64_t all = 0;
    for (int turn = 0; turn < group % 3; ++turn) {
      const std::int64_t of_turn = cuda::JoinLanes<kLanes>(
          lane, [&](int k) { return in[group * kLanes + k] + turn; },
          [](std::int64_t a, std::int64_t b) { return Joined(a, b); });
      if (lane == 0) all = Joined(all, of_turn);
    }
    if (lane == 0) out[group] = all;
  }
  const std::int64_t* in;
  std::int64_t* out;
};

struct AddTo {
  ADA_HOST_DEVICE void operator()(std::int64_t i) const { to[i] += from[i] + by; }
  const std::int64_t* from;
  std::int64_t* to;
  std::int64_t by;
};

}  // namespace stream_kernels

namespace {

using namespace stream_kernels;
using Values64 = std::vector<std::int64_t>;

Values64 Counting(std::size_t count) {
  Values64 values(count);
  std::iota(values.begin(), values.end(), 1);
  return values;
}

// `turns` launches of Shift, and what comes of them.
void Turn(cuda::Stream& stream, const Numbers<std::int64_t>& a, const Numbers<std::int64_t>& b,
          int blocks, int turns) {
  for (int turn = 0; turn < turns; ++turn)
    Launch(stream, turn % 2 == 0 ? Shift{a.data(), b.data()} : Shift{b.data(), a.data()}, blocks);
}
Values64 Turned(Values64 values, int turns) {
  for (int turn = 0; turn < turns; ++turn) {
    Values64 next(values.size());
    for (std::size_t i = 0; i < values.size(); ++i)
      next[i] = 3 * values[(i * 7 + 3) % values.size()] + 1;
    values = next;
  }
  return values;
}

template <int kLanes>
void CheckLanes(cuda::Stream& stream) {
  using Kernel = OrderOfLanes<kLanes>;
  CAPTURE(kLanes);
  constexpr std::size_t kBlocks = 50, kGroups = kBlocks * Kernel::kGroups;
  const Numbers<std::int64_t> in(stream, kGroups * kLanes), out(stream, kGroups);
  const Values64 values = Counting(kGroups * kLanes);
  in.Set(values);
  Launch(stream, Kernel{in.data(), out.data()}, kBlocks);
  Values64 expected(kGroups);
  for (std::size_t group = 0; group < kGroups; ++group)
    for (std::size_t turn = 0; turn < group % 3; ++turn) {
      std::int64_t joined = 0;
      for (std::size_t k = 0; k < kLanes; ++k) {
        const std::int64_t own = values[group * kLanes + k] + static_cast<std::int64_t>(turn);
        joined = k == 0 ? own : Kernel::Joined(joined, own);
      }
      expected[group] = Kernel::Joined(expected[group], joined);
    }
  CHECK(out.Get() == expected);
}

// Two streams: the side adds while the main stream does something else, and is waited for.
struct Fork {
  explicit Fork(cuda::Stream& main)
      : stream(main), side(main.MakeSide()), begin(main.MakeEvent()), end(side->MakeEvent()) {}
  void Ask(const Numbers<std::int64_t>& a, const Numbers<std::int64_t>& b,
           const Numbers<std::int64_t>& c, std::int64_t n) const {
    ForEach(stream, n, AddTo{a.data(), b.data(), 1});
    begin->Mark();
    side->WaitFor(*begin);
    ForEach(*side, n, AddTo{b.data(), c.data(), 0});
    end->Mark();
    ForEach(stream, n, AddTo{b.data(), a.data(), 0});
    stream.WaitFor(*end);
    ForEach(stream, n, AddTo{c.data(), b.data(), 0});
  }
  cuda::Stream& stream;
  std::unique_ptr<cuda::Stream> side;
  std::unique_ptr<cuda::Event> begin, end;
};

}  // namespace

TEST_SUITE(ADA_SUITE) {
  TEST_CASE("streams: all threads of a block finish a phase before the next begins") {
    for (const CudaSwitches& switches : StreamSwitches()) {
      const auto stream = NewStream(switches);
      constexpr int kBlocks = 500;
      const Numbers<std::int64_t> in(*stream, 64 * kBlocks), out(*stream, kBlocks);
      in.Set(Counting(64 * kBlocks));
      Launch(*stream, TreeSum{in.data(), out.data()}, kBlocks);
      Values64 expected;
      for (std::int64_t block = 0; block < kBlocks; ++block)
        expected.push_back(64 * 64 * block + 64 * 65 / 2 + kBlocks);
      CHECK(out.Get() == expected);
    }
  }

  TEST_CASE("streams: all threads of a block finish a turn before the next begins") {
    for (const CudaSwitches& switches : StreamSwitches()) {
      const auto stream = NewStream(switches);
      constexpr int kBlocks = 500, kCount = 64 * kBlocks;
      const Numbers<std::int64_t> in(*stream, kCount), out(*stream, kCount), sums(*stream, 1);
      const Numbers<std::uint32_t> finished(*stream, 1);
      in.Set(Counting(kCount));
      LaunchInTurn(*stream, Rotation{in.data(), out.data()},
                   ColumnSums{out.data(), kCount, sums.data()}, finished.data(), kBlocks);
      const Values64 before = Counting(kCount);
      Values64 expected = before;
      for (std::size_t i = 0; i < expected.size(); ++i) {
        const std::size_t block = i / 64, moves = block % 4;
        expected[i] =
            before[block * 64 + (i + moves) % 64] + static_cast<std::int64_t>(moves * moves);
      }
      CHECK(out.Get() == expected);
      CHECK(sums.Get() ==
            Values64{std::accumulate(expected.begin(), expected.end(), std::int64_t{0})});
    }
  }

  TEST_CASE("streams: a launch sees all of the one before, also where it came early") {
    for (const CudaSwitches& switches : StreamSwitches())
      for (const int blocks : {1, 40, 3000}) {
        CAPTURE(cuda::SwitchesText(switches));
        CAPTURE(blocks);
        const auto stream = NewStream(switches);
        const auto count = static_cast<std::size_t>(blocks);
        const Numbers<std::int64_t> a(*stream, count), b(*stream, count);
        a.Set(Counting(count));
        Turn(*stream, a, b, blocks, 20);
        CHECK(a.Get() == Turned(Counting(count), 20));
        const auto recording = stream->Record([&] { Turn(*stream, a, b, blocks, 10); });
        a.Set(Counting(count));
        for (int i = 0; i < 3; ++i) recording->Replay();
        CHECK(a.Get() == Turned(Counting(count), 30));
      }
  }

  TEST_CASE("streams: the last block of each column goes on, or a launch of its own does") {
    for (const CudaSwitches& switches : StreamSwitches())
      for (const int columns : {1, 4}) {
        const auto stream = NewStream(switches);
        constexpr int kBlocks = 1200;
        const Numbers<std::int64_t> a(*stream, kBlocks), b(*stream, kBlocks), sums(*stream, 4);
        const Numbers<std::uint32_t> finished(*stream, 4);
        a.Set(Counting(kBlocks));
        Values64 expected(4), turned = Turned(Counting(kBlocks), 1);
        for (int time = 0; time < 3; ++time) {
          LaunchInTurn(*stream, Shift{a.data(), b.data()},
                       ColumnSums{b.data(), kBlocks, sums.data()}, finished.data(), kBlocks,
                       columns);
          for (std::size_t i = 0; i < turned.size(); ++i)
            expected[i % static_cast<std::size_t>(columns)] += turned[i];
          CHECK(sums.Get() == expected);
          CHECK(finished.Get() == std::vector<std::uint32_t>(4));
        }
        LaunchInTurn(*stream, Shift{a.data(), b.data()}, ColumnSums{b.data(), kBlocks, sums.data()},
                     finished.data(), 0, columns);
        CHECK(sums.Get() == expected);
      }
  }

  TEST_CASE("streams: two streams give what one gives, launched and recorded") {
    constexpr std::int64_t kCount = 100'000;
    const auto add = [](Values64& to, const Values64& from, std::int64_t by) {
      for (std::size_t i = 0; i < to.size(); ++i) to[i] += from[i] + by;
    };
    for (const CudaSwitches& switches : StreamSwitches()) {
      const auto stream = NewStream(switches);
      const Numbers<std::int64_t> a(*stream, kCount), b(*stream, kCount), c(*stream, kCount);
      a.Set(Counting(kCount));
      Values64 x = Counting(kCount), y(kCount), z(kCount);
      const Fork fork(*stream);
      const auto recording = stream->Record([&] { fork.Ask(a, b, c, kCount); });
      for (int time = 0; time < 4; ++time) {
        if (time < 2)
          fork.Ask(a, b, c, kCount);
        else
          recording->Replay();
        add(y, x, 1), add(z, y, 0), add(x, y, 0), add(y, z, 0);
        CHECK(b.Get() == y);
        CHECK(a.Get() == x);
      }
    }
  }

  TEST_CASE("streams: lanes of a warp are joined in their order, whatever other groups do") {
    const auto stream = NewStream();
    CheckLanes<1>(*stream);
    CheckLanes<8>(*stream);
    CheckLanes<16>(*stream);
    CheckLanes<32>(*stream);
  }

  TEST_CASE("streams: memory is NaN where it is poisoned and nobody promises zeros") {
    for (const CudaSwitches& switches : StreamSwitches()) {
      const auto stream = NewStream(switches);
      constexpr std::size_t kBytes = 1000;
      std::byte *const block = stream->Allocate(kBytes), *const zeroed =
                                                             stream->AllocateZeroed(kBytes);
      std::vector<std::uint8_t> seen(kBytes), zeros(kBytes, 1);
      stream->CopyToHost(seen.data(), block, kBytes);
      stream->CopyToHost(zeros.data(), zeroed, kBytes);
      stream->Synchronize();
      if (switches.poison) CHECK(seen == std::vector<std::uint8_t>(kBytes, 0xff));
      CHECK(zeros == std::vector<std::uint8_t>(kBytes));
      stream->Free(block), stream->Free(zeroed);
    }
  }

  TEST_CASE("streams: what is copied from the host may be changed at once") {
    const auto stream = NewStream();
    constexpr std::size_t kCount = 1 << 20;
    const Numbers<std::int64_t> a(*stream, kCount), b(*stream, kCount);
    {
      Values64 values = Counting(kCount);
      b.Set(values);  // keeps the stream busy
      a.Set(values);
      std::fill(values.begin(), values.end(), -1);
    }
    CHECK(a.Get() == Counting(kCount));
  }
}

}  // namespace ada::backend::test
