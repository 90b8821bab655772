// See memory.h.
#include "backend/cuda/memory.h"

#include <algorithm>
#include <cstring>
#include <functional>

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

Memory::~Memory() {
  for (std::byte* block : blocks_) stream_.Free(block);
}

std::byte* Memory::Allocate(std::size_t bytes) {
  blocks_.reserve(blocks_.size() + 1);
  return Keep(stream_.Allocate(bytes), bytes);
}
std::byte* Memory::AllocateZeroed(std::size_t bytes) {
  blocks_.reserve(blocks_.size() + 1);
  return Keep(stream_.AllocateZeroed(bytes), bytes);
}
std::byte* Memory::Keep(std::byte* block, std::size_t bytes) {
  blocks_.push_back(block);
  bytes_ += bytes;
  return block;
}

SharedBlocks::~SharedBlocks() {
  for (const SharedMemory& block : blocks_) stream_.FreeOnHost(block.host);
}

SharedMemory SharedBlocks::Allocate(std::size_t bytes) {
  blocks_.reserve(blocks_.size() + 1);
  std::byte* backend = memory_.AllocateZeroed(bytes);
  blocks_.push_back({backend, stream_.AllocateOnHost(bytes), bytes});
  return blocks_.back();
}

void SharedBlocks::Fetch(const SharedMemory& part) {
  ADA_CHECK(HostOf(part.backend) == part.host);
  stream_.CopyToHost(part.host, part.backend, part.bytes);
}

void SharedBlocks::Send(const SharedMemory& part) {
  ADA_CHECK(HostOf(part.backend) == part.host);
  staging_.Send(part.backend, part.host, part.bytes);
}

std::byte* SharedBlocks::HostOf(const std::byte* backend) const {
  if (backend == nullptr) return nullptr;
  const std::less<const std::byte*> before;
  for (const SharedMemory& block : blocks_)
    if (!before(backend, block.backend) && before(backend, block.backend + block.bytes))
      return block.host + (backend - block.backend);
  throw InternalError("a pointer of an op's specification points into no shared memory");
}

Scratch::~Scratch() {
  for (std::byte* block : blocks_) stream_.Free(block);
}

std::byte* Scratch::data() {
  if (blocks_.empty() || size_ < wanted_) {
    blocks_.reserve(blocks_.size() + 1);
    blocks_.push_back(stream_.Allocate(wanted_));
    size_ = wanted_;
  }
  return blocks_.back();
}

}  // namespace ada::backend::cuda
