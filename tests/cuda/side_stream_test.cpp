// Two streams of the host executor, which are as late as they may be, and work on a side stream
// that is waited for where somebody writes what it reads.
#ifndef ADA_CUDA_DEVICE
#include "backend/cuda/side_stream.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "backend/cuda/launch.h"
#include "cuda/host_context.h"
#include "error.h"

namespace ada::backend::cuda {
namespace {

using test::HostContext;

struct Put {
  ADA_HOST_DEVICE void operator()(std::int64_t) const { *to = value; }
  std::int64_t* to;
  std::int64_t value;
};
struct Take {
  ADA_HOST_DEVICE void operator()(std::int64_t) const { *to = *from; }
  const std::int64_t* from;
  std::int64_t* to;
};

class NoMatmuls final : public Matmuls {
 public:
  std::unique_ptr<Matmul> Make(const MatmulRequest&) override { return nullptr; }
};

std::int64_t* Number(Stream& stream) {
  return reinterpret_cast<std::int64_t*>(stream.AllocateZeroed(sizeof(std::int64_t)));
}
Range RangeOf(const std::int64_t* numbers, std::size_t count) {
  return {reinterpret_cast<const std::byte*>(numbers), count * sizeof(std::int64_t)};
}

// Two works on the side stream, of which each copies a number that the stream overwrites later.
struct Copying {
  explicit Copying(bool main_late, bool sides_late) : host(none) {
    host.stream.set_late(main_late, sides_late);
    for (int i = 0; i < 2; ++i) from[i] = Number(host.stream), to[i] = Number(host.stream);
  }
  void Ask(int i) {
    side_stream.Run({RangeOf(from[i], 1)}, [&] {
      ForEach(side_stream.context().stream, 1, Take{from[i], to[i]});
    });
  }
  int Waits() {
    const std::vector<std::string> names = host.stream.TakeNames();
    return static_cast<int>(std::count(names.begin(), names.end(), "waits"));
  }
  NoMatmuls none;
  HostContext host;
  SideStream& side_stream = host.side_stream;
  std::int64_t *from[2], *to[2];
};

TEST_SUITE("cpu") {
  TEST_CASE("a side that is late works when somebody waits for it, in its order") {
    HostStream stream;
    const std::unique_ptr<Stream> side = stream.MakeSide();
    const auto event = side->MakeEvent();
    std::int64_t* a = Number(stream);
    ForEach(*side, 1, Put{a, 1});
    event->Mark();
    ForEach(*side, 1, Put{a, 2});
    CHECK(*a == 0);
    stream.WaitFor(*event);
    CHECK(*a == 1);
    side->Synchronize();
    CHECK(*a == 2);
  }

  TEST_CASE("a main stream that is late works when its side waits for it") {
    HostStream stream;
    stream.set_late(true, false);
    const std::unique_ptr<Stream> side = stream.MakeSide();
    const auto event = stream.MakeEvent();
    std::int64_t *a = Number(stream), *b = Number(stream);
    ForEach(stream, 1, Put{a, 1});
    event->Mark();
    ForEach(stream, 1, Put{a, 2});
    CHECK(*a == 0);
    side->WaitFor(*event);
    ForEach(*side, 1, Take{a, b});
    CHECK(*b == 1);
    stream.Synchronize();
    CHECK(*a == 2);
  }

  TEST_CASE("a recording has a side's work and what waits for it, and replays both") {
    HostStream stream;
    const std::unique_ptr<Stream> side = stream.MakeSide();
    const auto begin = stream.MakeEvent(), end = side->MakeEvent();
    std::int64_t *a = Number(stream), *b = Number(stream);
    const auto fork = [&] { begin->Mark(), side->WaitFor(*begin); };
    const auto recording = stream.Record([&] {
      ForEach(stream, 1, Put{a, 5});
      fork();
      ForEach(*side, 1, Take{a, b});
      end->Mark();
      stream.WaitFor(*end);
      ForEach(stream, 1, Put{a, 6});
    });
    for (int i = 0; i < 2; ++i) {
      *b = 0;
      recording->Replay();
      stream.Synchronize();
      CHECK(*a == 6);
      CHECK(*b == 5);
    }
    // Work on the side stream that is not of the recording and goes on after its end.
    CHECK_THROWS_AS(stream.Record([&] { ForEach(*side, 1, Put{a, 1}); }), InternalError);
    CHECK_THROWS_AS(stream.Record([&] {
      fork(), ForEach(*side, 1, Put{a, 1}), end->Mark();
    }),
                    InternalError);
    CHECK_THROWS_AS(stream.Record([&] { stream.WaitFor(*end); }), InternalError);
  }

  TEST_CASE("work beside is waited for where what it reads is written, and not before") {
    Copying c(false, true);
    const SideStream::Scope open(c.side_stream);
    for (int i = 0; i < 2; ++i) {
      ForEach(c.host.stream, 1, Put{c.from[i], 3 + i});
      c.Ask(i);
    }
    c.host.stream.KeepNames();
    std::int64_t* other = Number(c.host.stream);
    c.side_stream.BeforeWrite(RangeOf(other, 1));
    CHECK(c.Waits() == 0);
    c.side_stream.BeforeWrite(RangeOf(c.from[0], 1));
    CHECK(c.Waits() == 1);
    CHECK(*c.to[0] == 3);
    CHECK(*c.to[1] == 0);
    c.side_stream.BeforeWrite(RangeOf(c.from[0], 1));  // nobody reads it any more
    CHECK(c.Waits() == 0);
    c.side_stream.Join();
    CHECK(c.Waits() == 1);
    CHECK(*c.to[1] == 4);
    c.side_stream.Join();
    CHECK(c.Waits() == 0);
  }

  TEST_CASE("work beside comes behind what the stream was asked for, and is joined at once alone") {
    for (const bool sides_late : {false, true}) {
      Copying c(true, sides_late);
      ForEach(c.host.stream, 1, Put{c.from[0], 8});
      c.Ask(0);
      ForEach(c.host.stream, 1, Put{c.from[0], 9});
      c.host.stream.Synchronize();
      CHECK(*c.to[0] == 8);
      CHECK(*c.from[0] == 9);
    }
  }

  TEST_CASE("ranges overlap where they share a byte") {
    const std::int64_t numbers[4] = {};
    CHECK(RangeOf(numbers, 2).Overlaps(RangeOf(numbers + 1, 3)));
    CHECK(RangeOf(numbers + 1, 1).Overlaps(RangeOf(numbers, 4)));
    CHECK(!RangeOf(numbers, 2).Overlaps(RangeOf(numbers + 2, 2)));
    CHECK(!Range().Overlaps(RangeOf(numbers, 4)));
    CHECK(!RangeOf(numbers, 4).Overlaps(Range()));
  }
}

}  // namespace
}  // namespace ada::backend::cuda
#endif
