// Memory that a backend shares with the host, for plain objects that ops write and the host reads
// (counts, moments, decisions, scales) or the reverse. Each object has one address for the backend
// and one for the host.
#pragma once
#include <cstddef>
#include <new>
#include <type_traits>
#include <vector>

#include "backend/backend.h"

namespace ada::graph {

// Consecutive objects.
template <typename T>
struct SharedArray {
  T* backend = nullptr;  // for specs
  T* host = nullptr;
  std::size_t count = 0;
  backend::SharedMemory memory() const {
    return {reinterpret_cast<std::byte*>(backend), reinterpret_cast<std::byte*>(host),
            count * sizeof(T)};
  }
};

// A graph has one for each group of objects that is copied together. Few blocks mean few copies,
// which matters if each is a transfer. Objects live as long as the backend.
class SharedArena {
 public:
  // `backend` must outlive the arena; it owns the memory. A new block is allocated when one is
  // full; with block_bytes 0, for each Add.
  SharedArena(backend::Backend& backend, std::size_t block_bytes)
      : backend_(backend), block_bytes_(block_bytes) {}
  SharedArena(const SharedArena&) = delete;

  // Objects are initialized by T() on the host; ops see them after the next Send. They never move.
  template <typename T>
  SharedArray<T> Add(std::size_t count = 1) {
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= kAlignment);
    const backend::SharedMemory memory = Take(count * sizeof(T));
    const SharedArray<T> added{reinterpret_cast<T*>(memory.backend),
                               reinterpret_cast<T*>(memory.host), count};
    for (std::size_t i = 0; i < count; ++i) new (added.host + i) T();
    return added;
  }

  // Copies all of it from the backend to the host (readable after Backend::Synchronize), or back.
  void Fetch();
  void Send();

 private:
  static constexpr std::size_t kAlignment = 16;
  struct Block {
    backend::SharedMemory memory;
    std::size_t used;
  };
  backend::SharedMemory Take(std::size_t bytes);

  backend::Backend& backend_;
  const std::size_t block_bytes_;
  std::vector<Block> blocks_;
};

}  // namespace ada::graph
