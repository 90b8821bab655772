// The backend's memory: plain blocks and blocks that ops write and the host reads, which lie once
// with the backend and once with the host, for as long as the backend lives; and scratch memory.
#pragma once
#include <algorithm>
#include <cstddef>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/staging.h"
#include "backend/cuda/stream.h"

namespace ada::backend::cuda {

// Backend memory of one backend.
class Memory {
 public:
  explicit Memory(Stream& stream) : stream_(stream) {}
  ~Memory();
  Memory(const Memory&) = delete;
  std::byte* Allocate(std::size_t bytes);  // not initialized
  std::byte* AllocateZeroed(std::size_t bytes);
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* Keep(std::byte* block, std::size_t bytes);

  Stream& stream_;
  std::vector<std::byte*> blocks_;
  std::size_t bytes_ = 0;
};

class SharedBlocks {
 public:
  SharedBlocks(Stream& stream, Memory& memory) : stream_(stream), memory_(memory) {}
  ~SharedBlocks();
  SharedBlocks(const SharedBlocks&) = delete;
  SharedMemory Allocate(std::size_t bytes);  // zeroed
  // Both copy whole blocks or parts of them; see Backend. Nobody waits for the device here.
  void Fetch(const SharedMemory& part);
  void Send(const SharedMemory& part);

  // Where the host's copy of *backend lies; null of null. A pointer into no shared block is a bug.
  template <class T>
  T* Host(T* backend) const {
    return reinterpret_cast<T*>(HostOf(reinterpret_cast<const std::byte*>(backend)));
  }

 private:
  std::byte* HostOf(const std::byte* backend) const;
  Stream& stream_;
  Memory& memory_;
  // Not from the blocks themselves: the host writes to them before the device has read.
  Staging staging_{stream_, 4};
  std::vector<SharedMemory> blocks_;
};

// Memory that ops use within one call and all share. Ops reserve when they are made; the largest
// request counts. data() may be called from the first call on; what an earlier, smaller block was
// recorded with stays valid.
class Scratch {
 public:
  explicit Scratch(Stream& stream) : stream_(stream) {}
  ~Scratch();
  Scratch(const Scratch&) = delete;
  void Reserve(std::size_t bytes) { wanted_ = std::max(wanted_, bytes); }
  std::byte* data();
  // Makes room for what was reserved meanwhile. To be called before a stream records, which allows
  // no allocation.
  void Grow() {
    if (size_ < wanted_) data();
  }
  std::size_t bytes() const { return wanted_; }

 private:
  Stream& stream_;
  std::size_t wanted_ = 0, size_ = 0;
  std::vector<std::byte*> blocks_;  // the last is in use
};

}  // namespace ada::backend::cuda
