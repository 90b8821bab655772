// What a step sends to the device, without waiting for the device.
#pragma once
#include <cstddef>
#include <memory>
#include <vector>

#include "backend/cuda/stream.h"

namespace ada::backend::cuda {

// A ring of blocks of memory that the device reads by itself: bytes are copied there at once, and
// from there in the stream's order. Waits only where all blocks are still to be read. Blocks grow
// to the largest that was sent.
class Staging {
 public:
  Staging(Stream& stream, int blocks);
  ~Staging();
  Staging(const Staging&) = delete;

  // `from` may be changed when this returns. Not while the stream records.
  void Send(std::byte* to, const void* from, std::size_t bytes);

 private:
  struct Block {
    std::byte* memory = nullptr;
    std::size_t bytes = 0;
    std::unique_ptr<Event> was_read;
  };

  Stream& stream_;
  std::vector<Block> blocks_;
  std::size_t next_ = 0, largest_ = 0;
};

}  // namespace ada::backend::cuda
