// Memory of the CUDA backend on the host executor: shared blocks, scratch.
#ifndef ADA_CUDA_DEVICE
#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "backend/cuda/context.h"
#include "backend/cuda/memory.h"
#include "cuda/host/host_stream.h"
#include "error.h"

namespace ada::backend::cuda {
namespace {

struct Both {
  double a, b;
};

TEST_SUITE("cpu") {
  TEST_CASE("shared memory is two: Fetch and Send copy one over the other") {
    HostStream stream;
    Memory memory(stream);
    SharedBlocks shared(stream, memory);
    const SharedMemory block = shared.Allocate(2 * sizeof(Both));
    REQUIRE(block.backend != block.host);
    auto* theirs = reinterpret_cast<Both*>(block.backend);
    auto* ours = reinterpret_cast<Both*>(block.host);
    CHECK(ours[1].b == 0);
    CHECK(theirs[1].b == 0);

    ours[1] = {1, 2};
    shared.Send(block);
    ours[1] = {3, 4};
    stream.Synchronize();
    CHECK(theirs[1].b == 2);
    shared.Fetch(block);
    CHECK(ours[1].b == 4);
    stream.Synchronize();
    CHECK(ours[1].b == 2);
    CHECK(memory.bytes() == 2 * sizeof(Both));
  }

  TEST_CASE("parts of shared memory, and the host's side of a pointer") {
    HostStream stream;
    Memory memory(stream);
    SharedBlocks shared(stream, memory);
    shared.Allocate(64);
    const SharedMemory block = shared.Allocate(4 * sizeof(Both));
    auto* theirs = reinterpret_cast<Both*>(block.backend);
    auto* ours = reinterpret_cast<Both*>(block.host);
    ours[2].a = 5;
    ours[3].a = 6;
    const std::size_t at = 2 * sizeof(Both);
    shared.Send({block.backend + at, block.host + at, sizeof(Both)});
    stream.Synchronize();
    CHECK(theirs[2].a == 5);
    CHECK(theirs[3].a == 0);

    CHECK(shared.Host(&theirs[2]) == &ours[2]);
    CHECK(shared.Host(&theirs[2].b) == &ours[2].b);
    CHECK(shared.Host(static_cast<Both*>(nullptr)) == nullptr);
    CHECK_THROWS_AS(shared.Host(ours), InternalError);
    CHECK_THROWS_AS(shared.Host(theirs + 4 + 100000), InternalError);
    CHECK_THROWS_AS(shared.Send({block.backend + at, block.host, 8}), InternalError);
  }

  TEST_CASE("scratch grows to the largest wish and leaves earlier blocks in place") {
    HostStream stream;
    Scratch scratch(stream);
    scratch.Reserve(100);
    scratch.Reserve(50);
    std::byte* first = scratch.data();
    CHECK(scratch.data() == first);
    scratch.Reserve(1000);
    CHECK(scratch.bytes() == 1000);
    std::byte* second = scratch.data();
    CHECK(second != first);
    std::memset(first, 1, 100);  // still there
    std::memset(second, 1, 1000);
  }
}

}  // namespace
}  // namespace ada::backend::cuda
#endif
