// See staging.h.
#include "backend/cuda/staging.h"

#include <algorithm>
#include <cstring>

#include "error.h"

namespace ada::backend::cuda {

Staging::Staging(Stream& stream, int blocks)
    : stream_(stream), blocks_(static_cast<std::size_t>(blocks)) {
  for (Block& block : blocks_) block.was_read = stream.MakeEvent();
}

Staging::~Staging() {
  for (const Block& block : blocks_) {
    try {
      block.was_read->Wait();
    } catch (const DeviceError&) {  // a device that is lost reads no more
    }
    if (block.memory != nullptr) stream_.FreeOnHost(block.memory);
  }
}

void Staging::Send(std::byte* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  Block& block = blocks_[next_];
  next_ = (next_ + 1) % blocks_.size();
  block.was_read->Wait();
  largest_ = std::max(largest_, bytes);
  if (block.bytes < bytes) {
    if (block.memory != nullptr) stream_.FreeOnHost(block.memory);
    block.memory = nullptr, block.bytes = 0;
    block.memory = stream_.AllocateOnHost(largest_);
    block.bytes = largest_;
  }
  std::memcpy(block.memory, from, bytes);
  stream_.CopyToDevice(to, block.memory, bytes);
  block.was_read->Mark();
}

}  // namespace ada::backend::cuda
