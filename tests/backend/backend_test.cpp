// The backend itself: what it says of itself, its memory, and how it cuts tensors.
#include <doctest/doctest.h>

#include <algorithm>

#include "backend/cpu/cpu_backend.h"
#include "backend/naive_count.h"
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

  TEST_CASE("backend: the first images of a tensor as fp32, in every storage") {
    Bench bench(2);
    const Shape shape{5, 3, 7, 5};
    const auto n = static_cast<std::size_t>(shape.numel());
    for (const Kind& kind : MainKinds())
      for (const std::size_t rows : {0, 1, 3, 5}) {
        CAPTURE(kind.name);
        CAPTURE(rows);
        Values stored = RoundAll(kind.format, Spread(kind.format, n, 7));
        stored[2] = INFINITY, stored[3] = -0.0f, stored[4] = NAN;
        const Tensor t = bench.Make(shape, kind.format, stored);
        Values read(n, 77);
        bench->Read(t, static_cast<std::int64_t>(rows), read.data());
        for (std::size_t i = 0; i < n; ++i)
          CHECK(ada::test::Same(read[i], i < rows * n / 5 ? stored[i] : 77));
      }
    // Weights too, whose first number is that of their outputs.
    const Tensor w = bench.Make({4, 3, 3, 2}, kFp32, Normal(72, 1, 1));
    Values read(72);
    bench->Read(w, 4, read.data());
    CHECK(read == Bench::Get(w));
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
                          {{16, 128, 1, 128}, 1},  // tokens of a sequence
                          {{128, 9, 1, 32}, 32},
                          {{128, 9, 8, 240}, 2},  // rows of few pixels
                          {{128, 1, 1, 10}, 1024},
                          {{128, 1, 1, 1}, 16384}})
      CHECK(bench->BlockImages(c.shape) == c.images);
  }
}

}  // namespace ada::backend::test
