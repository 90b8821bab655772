// Anonymous mappings, cut to begin at a huge page; small blocks come from the heap.
#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "io/memory.h"

namespace ada {
namespace {

constexpr std::size_t kHuge = 2 << 20, kPage = 64 << 10, kLine = 64;

std::size_t RoundUp(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// Throws where rounding up and cutting would leave std::size_t.
void CheckSize(std::size_t bytes) {
  if (bytes > SIZE_MAX / 2) throw std::bad_alloc();
}

// Returns a small block, cleared as a mapping is.
std::byte* FromHeap(std::size_t bytes) {
  const std::size_t rounded = RoundUp(bytes == 0 ? 1 : bytes, kLine);
  void* block = std::aligned_alloc(kLine, rounded);
  if (block == nullptr) throw std::bad_alloc();
  std::memset(block, 0, rounded);
  return static_cast<std::byte*>(block);
}

}  // namespace

// kPage is a multiple of every size that a page may have. A mapping is as large as asked for plus
// one huge page; what lies before the first border of a huge page and after the block goes back.
// Nothing is reserved: whether all of it will fit is asked elsewhere, before any of it is used.
std::byte* AllocatePages(std::size_t bytes, PageKind kind) {
  CheckSize(bytes);
  if (bytes < kHuge) return FromHeap(bytes);
  const std::size_t kept = RoundUp(bytes, kPage);
  void* map = mmap(nullptr, kept + kHuge, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   /*fd=*/-1, /*offset=*/0);
  if (map == MAP_FAILED) throw std::bad_alloc();
  auto* start = static_cast<std::byte*>(map);
  const std::size_t before = (kHuge - reinterpret_cast<std::uintptr_t>(start) % kHuge) % kHuge;
  if (before > 0) munmap(start, before);
  munmap(start + before + kept, kHuge - before);
#ifdef MADV_HUGEPAGE
  // Only a hint: where it fails, pages are small.
  if (kind == PageKind::kHuge) madvise(start + before, kept, MADV_HUGEPAGE);
#endif
  return start + before;
}

void FreePages(std::byte* block, std::size_t bytes) noexcept {
  if (block == nullptr) return;
  if (bytes < kHuge)
    std::free(block);
  else
    munmap(block, RoundUp(bytes, kPage));
}

}  // namespace ada
