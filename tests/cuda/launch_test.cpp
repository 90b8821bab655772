// Kernels on the host executor: phases, blocks, threads, names, recordings.
#ifndef ADA_CUDA_DEVICE
#include "backend/cuda/launch.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "cuda/host/host_stream.h"
#include "error.h"

namespace ada::backend::cuda {
namespace {

template <class T>
T* Make(Stream& stream, std::size_t count) {
  return reinterpret_cast<T*>(stream.AllocateZeroed(count * sizeof(T)));
}

// The sum of each block's values, as a tree over phases.
struct TreeSum {
  static constexpr int kThreads = 64;
  static constexpr int kPhases = 8;
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
      const int half = kThreads >> kPhase;
      if (at.thread < half) {
        own.value += shared.sums[at.thread + half];
        shared.sums[at.thread] = own.value;
      }
    } else if (at.thread == 0) {
      out[at.block] = shared.sums[0] + 1000 * at.blocks;
    }
  }
  const std::int64_t* in;
  std::int64_t* out;
};

// Which threads find NaN where nothing was written.
struct Untouched {
  static constexpr int kThreads = 32;
  static constexpr int kPhases = 2;
  struct Shared {
    float value;
  };
  struct Own {
    float value;
  };
  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own& own) const {
    if constexpr (kPhase == 0)
      nans[at.block * kThreads + at.thread] = std::isnan(shared.value) && std::isnan(own.value);
    else
      shared.value = own.value = 1;
  }
  std::int64_t* nans;
};

struct Square {
  ADA_HOST_DEVICE void operator()(std::int64_t i) const { out[i] += i * i; }
  std::int64_t* out;
};

struct Append {  // depends on the order of threads: a race
  ADA_HOST_DEVICE void operator()(std::int64_t i) const { *last = i; }
  std::int64_t* last;
};

std::vector<std::int64_t> Fetched(Stream& stream, const std::int64_t* from, std::size_t count) {
  std::vector<std::int64_t> values(count);
  stream.CopyToHost(values.data(), reinterpret_cast<const std::byte*>(from), count * 8);
  stream.Synchronize();
  return values;
}

TEST_SUITE("cpu") {
  TEST_CASE("all threads of a block finish a phase before the next begins") {
    for (const bool reverse : {false, true}) {
      HostStream stream;
      stream.set_reverse(reverse);
      auto* in = Make<std::int64_t>(stream, 3 * 64);
      auto* out = Make<std::int64_t>(stream, 3);
      std::iota(in, in + 3 * 64, 1);
      Launch(stream, TreeSum{in, out}, 3);
      CHECK(Fetched(stream, out, 3) ==
            std::vector<std::int64_t>{3000 + 2080, 3000 + 2080 + 4096, 3000 + 2080 + 2 * 4096});
    }
  }

  TEST_CASE("shared and own memory are NaN in every block until they are written") {
    HostStream stream;
    auto* nans = Make<std::int64_t>(stream, 4 * 32);
    Launch(stream, Untouched{nans}, 4);
    CHECK(Fetched(stream, nans, 4 * 32) == std::vector<std::int64_t>(4 * 32, 1));
  }

  TEST_CASE("ForEach meets every value once, also beyond what one round of threads holds") {
    HostStream stream;
    for (const std::size_t n :
         {std::size_t{1}, std::size_t{255}, std::size_t{257}, std::size_t{4096} * 256 + 3}) {
      auto* out = Make<std::int64_t>(stream, n + 1);
      ForEach(stream, static_cast<std::int64_t>(n), Square{out});
      const std::vector<std::int64_t> values = Fetched(stream, out, n + 1);
      bool right = values[n] == 0;
      for (std::size_t i = 0; i < n; ++i)
        right = right && values[i] == static_cast<std::int64_t>(i * i);
      CHECK(right);
    }
    stream.KeepNames();
    ForEach(stream, 0, Square{nullptr});
    Launch(stream, TreeSum{nullptr, nullptr}, 0);
    CHECK(stream.TakeNames().empty());
  }

  TEST_CASE("the reverse order shows a race") {
    HostStream stream;
    auto* last = Make<std::int64_t>(stream, 1);
    ForEach(stream, 1000, Append{last});
    CHECK(Fetched(stream, last, 1)[0] == 999);
    stream.set_reverse(true);
    ForEach(stream, 1000, Append{last});
    CHECK(Fetched(stream, last, 1)[0] == 0);
  }

  TEST_CASE("names of work come in its order") {
    HostStream stream;
    stream.KeepNames();
    auto* a = Make<std::int64_t>(stream, 64);
    auto* b = Make<std::int64_t>(stream, 64);
    std::int64_t value = 5;
    stream.CopyToDevice(reinterpret_cast<std::byte*>(a), &value, 8);
    Launch(stream, TreeSum{a, b}, 1);
    ForEach(stream, 3, Square{a});
    stream.Copy(reinterpret_cast<std::byte*>(b), reinterpret_cast<std::byte*>(a), 8);
    stream.Zero(reinterpret_cast<std::byte*>(a), 8);
    const std::vector<std::string> names = stream.TakeNames();
    REQUIRE(names.size() == 5);
    CHECK(names[0] == "to device");
    CHECK(names[1] == "TreeSum");
    CHECK(names[2].find("ForEachKernel") == 0);
    CHECK(names[2].find("Square") != std::string::npos);
    CHECK(names[3] == "copy");
    CHECK(names[4] == "zero");
    CHECK(stream.TakeNames().empty());
  }

  TEST_CASE("a recording runs nothing until it is replayed, then the same each time") {
    HostStream stream;
    auto* out = Make<std::int64_t>(stream, 10);
    auto* copy = Make<std::int64_t>(stream, 10);
    stream.KeepNames();
    const auto recording = stream.Record([&] {
      ForEach(stream, 10, Square{out});
      stream.Copy(reinterpret_cast<std::byte*>(copy), reinterpret_cast<std::byte*>(out), 80);
    });
    CHECK(stream.TakeNames().empty());
    CHECK(Fetched(stream, out, 10)[3] == 0);
    stream.TakeNames();
    recording->Replay();
    recording->Replay();
    const std::vector<std::string> names = stream.TakeNames();
    REQUIRE(names.size() == 6);
    CHECK(names[0] == "replay");
    CHECK(names[3] == "replay");
    CHECK(names[2] == "copy");
    CHECK(Fetched(stream, copy, 10)[3] == 18);
  }

  TEST_CASE("what a device cannot record is refused, and recording ends with an error") {
    HostStream stream;
    std::byte* block = stream.Allocate(8);
    const std::vector<std::function<void()>> forbidden = {
        [&] { stream.Allocate(8); }, [&] { stream.Synchronize(); },
        [&] { stream.CopyToDevice(block, "1234567", 8); }, [&] { stream.Record([] {}); }};
    for (const auto& body : forbidden) CHECK_THROWS_AS(stream.Record(body), InternalError);
    stream.Synchronize();
    CHECK_NOTHROW(stream.Record([] {}));
  }

  TEST_CASE("what goes to the host arrives with Synchronize, as it was when it was asked for") {
    HostStream stream;
    std::byte* block = stream.Allocate(8);
    std::int64_t arrived = -1, value = 7;
    stream.CopyToDevice(block, &value, 8);
    value = 9;
    stream.CopyToHost(&arrived, block, 8);
    stream.Zero(block, 8);
    CHECK(arrived == -1);
    stream.Synchronize();
    CHECK(arrived == 7);
  }
}

}  // namespace
}  // namespace ada::backend::cuda
#endif
