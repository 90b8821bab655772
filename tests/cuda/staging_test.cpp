// Bytes on their way to the device: read late, right all the same, and no memory but the ring's.
#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/cuda/memory.h"
#include "cuda/on_both.h"
#include "cuda/stream_lab.h"

namespace ada::backend::test {
namespace {

std::vector<std::uint8_t> Read(cuda::Stream& stream, const std::byte* from, std::size_t bytes) {
  std::vector<std::uint8_t> all(bytes);
  stream.CopyToHost(all.data(), from, bytes);
  stream.Synchronize();
  return all;
}

// More sends than the ring has blocks, of growing and shrinking sizes, from memory that changes at
// once, with nothing between them that would make the device read.
void SendManyAndCompare() {
  const std::unique_ptr<cuda::Stream> stream = NewStream();
  constexpr std::size_t kMost = 4096;
  std::byte* const memory = stream->AllocateZeroed(kMost * 9);
  for (const int blocks : {1, 2, 4}) {
    cuda::Staging staging(*stream, blocks);
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{100}, kMost, std::size_t{7}}) {
      std::vector<std::uint8_t> values(bytes);
      for (std::uint8_t sent = 0; sent < 9; ++sent) {
        values.assign(bytes, static_cast<std::uint8_t>(10 * blocks + sent));
        staging.Send(memory + sent * kMost, values.data(), bytes);
      }
      values.assign(bytes, 0);
      for (std::uint8_t sent = 0; sent < 9; ++sent) {
        values.assign(bytes, static_cast<std::uint8_t>(10 * blocks + sent));
        CHECK(Read(*stream, memory + sent * kMost, bytes) == values);
      }
    }
    staging.Send(memory, nullptr, 0);
  }
  stream->Free(memory);
}

}  // namespace

TEST_SUITE(ADA_SUITE) {
  TEST_CASE("staging: what was sent arrives, whatever becomes of the sender's memory") {
    SendManyAndCompare();
  }
}

#ifndef ADA_CUDA_DEVICE
TEST_SUITE("cpu") {
  TEST_CASE("the host executor reads memory of the host as late as a device may") {
    cuda::HostStream stream;
    std::byte* const device = stream.AllocateZeroed(1);
    std::byte* const host = stream.AllocateOnHost(1);
    host[0] = std::byte{1};
    stream.CopyToDevice(device, host, 1);
    CHECK(device[0] == std::byte{0});
    host[0] = std::byte{2};
    const std::unique_ptr<cuda::Event> event = stream.MakeEvent();
    event->Mark();
    event->Wait();
    CHECK(device[0] == std::byte{2});
    // Memory that anybody may change is read at once.
    std::byte own{3};
    stream.CopyToDevice(device, &own, 1);
    CHECK(device[0] == std::byte{3});
  }
}
#endif

}  // namespace ada::backend::test
