// Memory from the system: large blocks of it, and how much this process can have.
#pragma once
#include <cstddef>
#include <cstdint>
#include <new>
#include <string>

namespace ada {

// Large blocks of memory straight from the system: zero, taking up room only where they have been
// touched.

// The pages of a block of 2 MiB or more. Huge ones, where the system grants them, spare most of the
// translation of addresses and are for what is read again and again; to clear them takes longer.
enum class PageKind { kSmall, kHuge };

// `bytes` zero bytes, aligned to 64 bytes; 2 MiB or more to 2 MiB. Throws std::bad_alloc.
std::byte* AllocatePages(std::size_t bytes, PageKind kind);
// `bytes`: what the block was allocated with. Null is nothing.
void FreePages(std::byte* block, std::size_t bytes) noexcept;

// An allocator over both whose vectors leave new elements as the memory is: resize(n) touches
// nothing, and what it adds has no value until it is written. Used where large buffers are filled
// at once: to clear them first would touch all their memory twice.
template <class T, PageKind kKind = PageKind::kSmall>
struct PageAllocator {
  using value_type = T;  // NOLINT(readability-identifier-naming): a name of the standard's
  template <class U>
  struct rebind {                           // NOLINT(readability-identifier-naming)
    using other = PageAllocator<U, kKind>;  // NOLINT(readability-identifier-naming)
  };
  PageAllocator() = default;
  template <class U>
  PageAllocator(const PageAllocator<U, kKind>&) {}  // NOLINT(google-explicit-constructor)
  T* allocate(std::size_t n) { return reinterpret_cast<T*>(AllocatePages(n * sizeof(T), kKind)); }
  void deallocate(T* p, std::size_t n) noexcept {
    FreePages(reinterpret_cast<std::byte*>(p), n * sizeof(T));
  }
  template <class U>
  void construct(U* p) {
    ::new (static_cast<void*>(p)) U;
  }
  template <class U, class... Args>
  void construct(U* p, Args&&... args) {
    ::new (static_cast<void*>(p)) U(static_cast<Args&&>(args)...);
  }
  friend bool operator==(const PageAllocator&, const PageAllocator&) { return true; }
};

// How much memory this process can have: the machine's, less where a cgroup (a container) or a
// resource limit (ulimit) gives less.

// Holds the smallest limit that was found, and the name under which a user can find it again.
struct MemoryLimit {
  std::uint64_t bytes = 0;  // swap included where it may be used
  std::string source;       // "the machine", "/sys/fs/cgroup/memory.max", "ulimit -v"
};

// The smallest of all limits. What cannot be read limits nothing. `root` stands before the paths of
// /proc and /sys.
MemoryLimit SmallestMemoryLimit(const std::string& root = "");
// What the machine could give at this moment without swapping; UINT64_MAX where it does not say.
std::uint64_t AvailableMemory(const std::string& root = "");

}  // namespace ada
