// The backend itself: what it says of itself, its memory, and how it cuts tensors.
#include <doctest/doctest.h>

#include <algorithm>

#include "backend/op_bench.h"

namespace ada::backend::test {

TEST_SUITE("cpu") {
  TEST_CASE("backend: describes library, instruction set and threads") {
    for (const int threads : {1, 3}) {
      Bench bench(threads);
      const std::string text = bench->Describe();
      CAPTURE(text);
      CHECK(text.find(cpu::LibraryVersion()) != std::string::npos);
      CHECK(text.find(bench->InstructionSet()) != std::string::npos);
      CHECK(text.find(threads == 1 ? "1 thread)" : "3 threads)") != std::string::npos);
    }
    CHECK(cpu::LibraryVersion().starts_with("oneDNN "));
    CHECK(cpu::UsableCores() >= 1);
  }

  TEST_CASE("backend: memory is zeroed, aligned, counted, and keeps what is uploaded") {
    Bench bench(1);
    std::size_t before = bench->allocated_bytes();
    for (const std::size_t bytes : {1, 63, 64, 65, 100000}) {
      std::byte* p = bench->Allocate(bytes);
      CHECK(reinterpret_cast<std::uintptr_t>(p) % 64 == 0);
      CHECK(std::all_of(p, p + bytes, [](std::byte b) { return b == std::byte{0}; }));
      CHECK(bench->allocated_bytes() >= before + bytes);
      before = bench->allocated_bytes();
    }
    const Values values = Normal(33, 1, 1);
    Values back(33);
    std::byte* p = bench->Allocate(33 * sizeof(float));
    bench->Upload(p, values.data(), 33 * sizeof(float));
    bench->Download(back.data(), p, 33 * sizeof(float));
    CHECK(FirstDifference(values, back) == -1);
  }

  TEST_CASE("backend: reduction blocks are powers of two of images, at most 16,384 values") {
    struct Case {
      Shape shape;
      int images;
    };
    Bench bench(1);
    for (const Case& c : {Case{{128, 32, 32, 16}, 1},
                          {{1, 32, 32, 16}, 1},
                          {{128, 32, 32, 64}, 1},
                          {{128, 16, 16, 32}, 2},
                          {{128, 8, 8, 64}, 4},
                          {{128, 8, 8, 65}, 2},
                          {{128, 1, 1, 10}, 1024},
                          {{128, 1, 1, 1}, 16384}})
      CHECK(bench->BlockImages(c.shape) == c.images);
  }
}

}  // namespace ada::backend::test
