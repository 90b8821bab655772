// Work beside a stream's own on the host executor: done as late as it may be, so that whatever
// follows without a join finds it undone; recorded and replayed as it was launched.
#ifndef ADA_CUDA_DEVICE
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "backend/cuda/host/host_stream.h"
#include "backend/cuda/launch.h"
#include "core/error.h"

namespace ada::backend::cuda {
namespace {

struct AddTo {
  ADA_HOST_DEVICE void operator()(std::int64_t) const { *to = *from + more; }
  const std::int64_t* from;
  std::int64_t* to;
  std::int64_t more;
};

struct Numbers {
  HostStream stream;
  std::int64_t* at = reinterpret_cast<std::int64_t*>(stream.Allocate(3 * sizeof(std::int64_t)));
  void Add(int from, int to, std::int64_t more) {
    ForEach(stream, 1, AddTo{at + from, at + to, more});
  }
};

TEST_SUITE("cpu") {
  TEST_CASE("aside: done at the join, in its own order, and not before") {
    Numbers n;
    n.Add(0, 1, 5);
    n.stream.Aside([&] { n.Add(1, 2, 10); });
    n.stream.Aside([&] { n.Add(2, 2, 100); });
    n.stream.Synchronize();
    CHECK(n.at[2] == 0);
    n.stream.JoinAside();
    CHECK(n.at[2] == 115);
    n.stream.Synchronize();
  }

  TEST_CASE("aside: a recording holds it, and where it is joined") {
    Numbers n;
    const auto body = [&] {
      n.Add(0, 1, 5);
      n.stream.Aside([&] { n.Add(1, 2, 10); });
      n.Add(0, 0, 1);
      n.stream.JoinAside();
      n.Add(2, 0, 0);
    };
    const auto recording = n.stream.Record(body);
    CHECK(n.at[0] == 0);
    n.stream.KeepNames();
    recording->Replay();
    CHECK(n.at[0] == 15);
    recording->Replay();
    CHECK(n.at[0] == 30);
    const std::vector<std::string> names = n.stream.TakeNames();
    REQUIRE(names.size() == 12);
    CHECK(names[0] == "replay");
    CHECK(names[3] == "joins");
    CHECK_THROWS_AS(n.stream.Record([&] { n.stream.Aside([&] { n.Add(0, 1, 1); }); }),
                    InternalError);
  }
}

}  // namespace
}  // namespace ada::backend::cuda
#endif
