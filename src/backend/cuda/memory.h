// The backend's memory: what a step sends, blocks that ops write and the host reads, which lie once
// with the backend and once with the host, scratch memory, and bytes that kernels write to the
// host.
#pragma once
#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/stream.h"
#include "error.h"

namespace ada::backend::cuda {

// What a step sends to the device, without waiting for the device. A ring of blocks of memory that
// the device reads by itself: bytes are copied there at once, and from there in the stream's order.
// Waits only where all blocks are still to be read. Blocks grow to the largest that was sent.
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

// A few bytes that a kernel writes and the host reads after it has waited for the stream: nothing
// is copied, and nobody waits a second time. One T in memory of AllocateOnHost, which kernels
// write.
template <class T>
class Pinned {
 public:
  static_assert(std::is_trivially_copyable_v<T>);
  explicit Pinned(Stream& stream)
      : stream_(stream), value_(new (stream.AllocateOnHost(sizeof(T))) T()) {}
  ~Pinned() {
    try {
      stream_.Synchronize();
    } catch (const DeviceError&) {  // a device that is lost writes no more
    }
    stream_.FreeOnHost(reinterpret_cast<std::byte*>(value_));
  }
  Pinned(const Pinned&) = delete;

  T* get() const { return value_; }               // for kernels
  const T& operator*() const { return *value_; }  // after Synchronize

 private:
  Stream& stream_;
  T* value_;
};

}  // namespace ada::backend::cuda
