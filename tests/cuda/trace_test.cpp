// The times of launches (ADA_CUDA_TRACE): what is noted of launches of two streams, recorded ones
// among them, and what is written of it.
#ifndef ADA_CUDA_DEVICE
#include "backend/cuda/trace.h"

#include <doctest/doctest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "backend/cuda/launch.h"
#include "cuda/host/host_stream.h"
#include "temp_folder.h"

namespace ada::backend::cuda {
namespace {

struct AddOne {
  ADA_HOST_DEVICE void operator()(std::int64_t i) const { to[i] += 1; }
  int* to;
};
struct AddTwo {
  ADA_HOST_DEVICE void operator()(std::int64_t i) const { to[i] += 2; }
  int* to;
};

struct Line {
  int stream;
  std::uint64_t begin, end;
  std::string kernel;
};
std::vector<Line> LinesOf(const std::string& path) {
  std::ifstream file(path);
  std::string text;
  const bool has_head = static_cast<bool>(std::getline(file, text));
  REQUIRE(has_head);
  CHECK(text == "stream\tbegin_ns\tend_ns\tkernel");
  std::vector<Line> lines;
  while (std::getline(file, text)) {
    std::istringstream words(text);
    Line line{};
    const bool reads = static_cast<bool>(words >> line.stream >> line.begin >> line.end);
    REQUIRE(reads);
    std::getline(words >> std::ws, line.kernel);
    lines.push_back(line);
  }
  return lines;
}

TEST_SUITE("cpu") {
  TEST_CASE("trace: launches of both streams in their order, replayed ones each time") {
    const testing::TempFolder folder;
    const std::string path = folder.path() + "/trace.tsv";
    HostStream stream;
    auto* values = reinterpret_cast<int*>(stream.AllocateZeroed(sizeof(int)));
    {
      Trace trace(stream, path);
      const auto side = stream.MakeSide();
      side->set_trace(&trace, 1);
      ForEach(stream, 1, AddOne{values});
      ForEach(*side, 1, AddTwo{values});
      side->Synchronize();
      const auto recording = stream.Record([&] { ForEach(stream, 1, AddTwo{values}); });
      recording->Replay();
      recording->Replay();
      stream.Synchronize();
      CHECK(*values == 7);
    }
    const std::vector<Line> lines = LinesOf(path);
    REQUIRE(lines.size() == 4);
    const int streams[] = {0, 1, 0, 0};
    for (std::size_t k = 0; k < 4; ++k) {
      CHECK(lines[k].stream == streams[k]);
      CHECK(lines[k].begin <= lines[k].end);
      CHECK(lines[k].kernel.find(k == 0 ? "AddOne" : "AddTwo") != std::string::npos);
      if (k > 0) CHECK(lines[k - 1].end <= lines[k].begin);
    }
    // Afterwards nothing is noted.
    ForEach(stream, 1, AddOne{values});
    CHECK(*values == 8);
  }

  TEST_CASE("trace: the last launches stay where there are more than it has room for") {
    const testing::TempFolder folder;
    const std::string path = folder.path() + "/trace.tsv";
    HostStream stream;
    auto* values = reinterpret_cast<int*>(stream.AllocateZeroed(sizeof(int)));
    {
      Trace trace(stream, path);
      ForEach(stream, 1, AddTwo{values});
      const auto recording = stream.Record([&] { ForEach(stream, 1, AddOne{values}); });
      for (std::uint32_t k = 0; k < TraceRing::kEntries; ++k) recording->Replay();
    }
    const std::vector<Line> lines = LinesOf(path);
    CHECK(lines.size() == TraceRing::kEntries);
    CHECK(lines.front().kernel.find("AddOne") != std::string::npos);
  }

  TEST_CASE("trace: without a path there is none") {
    HostStream stream;
    const Trace trace(stream, "");
    CHECK(stream.trace() == nullptr);
  }
}

}  // namespace
}  // namespace ada::backend::cuda
#endif
