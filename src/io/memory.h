// Large blocks of memory from the system.
#pragma once
#include <cstddef>
#include <cstdint>
#include <new>

namespace ada {

// The pages of a block of 2 MiB or more. Huge pages, if the system grants them, save most of the
// address translation and suit memory that is read repeatedly; clearing them takes longer.
enum class PageKind { kSmall, kHuge };

// Returns `bytes` zero bytes directly from the system, which uses physical memory only where they
// are touched. They are aligned to 64 bytes; 2 MiB or more to 2 MiB. Throws std::bad_alloc.
std::byte* AllocatePages(std::size_t bytes, PageKind kind);
// `bytes`: the size with which the block was allocated. Null is ignored.
void FreePages(std::byte* block, std::size_t bytes) noexcept;

// An allocator that uses both and leaves new elements of a vector uninitialized: resize(n) touches
// no memory, and new elements have no value until they are written. For large buffers that are
// filled at once: clearing them first would write to all their memory twice.
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

}  // namespace ada
