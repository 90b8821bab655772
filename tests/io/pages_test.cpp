// Blocks of memory: zero, aligned, given back; vectors over them.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "io/memory.h"

namespace ada {

TEST_SUITE("cpu") {
  TEST_CASE("pages: blocks of any size are zero and aligned, again after they were used") {
    for (const PageKind kind : {PageKind::kSmall, PageKind::kHuge}) {
      for (const std::size_t bytes :
           {0, 1, 64, 65, 4096, (2 << 20) - 1, 2 << 20, (2 << 20) + 1, (4 << 20) - 4096, 5 << 20}) {
        CAPTURE(bytes);
        for (int round = 0; round < 2; ++round) {
          std::byte* block = AllocatePages(bytes, kind);
          REQUIRE(block != nullptr);
          const std::size_t alignment = bytes < (2 << 20) ? 64 : 2 << 20;
          CHECK(reinterpret_cast<std::uintptr_t>(block) % alignment == 0);
          CHECK(std::all_of(block, block + bytes, [](std::byte b) { return b == std::byte{0}; }));
          std::memset(block, 0xff, bytes);
          FreePages(block, bytes);
        }
      }
    }
    FreePages(nullptr, 0);
    CHECK_THROWS_AS(AllocatePages(SIZE_MAX, PageKind::kSmall), std::bad_alloc);
    CHECK_THROWS_AS(AllocatePages(SIZE_MAX / 4, PageKind::kHuge), std::bad_alloc);
  }

  TEST_CASE("pages: a vector over them holds its values when it grows, is copied and moved") {
    std::vector<std::uint32_t, PageAllocator<std::uint32_t>> values;
    for (std::uint32_t i = 0; i < 1'500'000; ++i) values.push_back(i * 3);
    auto copy = values;
    const auto moved = std::move(values);
    CHECK(moved == copy);
    copy.resize(10);
    copy.resize(12, 7);
    CHECK(copy[9] == 27);
    CHECK(copy[11] == 7);
    bool same = true;
    for (std::uint32_t i = 0; i < moved.size(); ++i) same = same && moved[i] == i * 3;
    CHECK(same);
  }
}

}  // namespace ada
