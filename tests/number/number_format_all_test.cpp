// fp32 patterns (float_patterns.h): fp16 against the processor's own conversion, bf16 against
// double.
#include <doctest/doctest.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

#include <atomic>
#include <thread>
#include <vector>

#include "float_patterns.h"
#include "number/independent.h"

namespace ada {
namespace {

using test::RoundIndependently;
using test::Same;

// Counts of wrong results over the patterns, computed by `count(first, last)` in runs.
template <class Count>
std::uint64_t OverPatterns(Count count) {
  const std::vector<std::uint64_t> runs = ada::testing::PatternRuns();
  std::atomic<std::size_t> next = 0;
  std::atomic<std::uint64_t> wrong = 0;
  const auto work = [&] {
    for (std::size_t i; (i = next.fetch_add(1)) < runs.size();)
      wrong += count(runs[i], runs[i] + ada::testing::kPatternRun);
  };
  std::vector<std::thread> threads;
  for (unsigned i = 1; i < std::thread::hardware_concurrency(); ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  return wrong;
}

float FromBits(std::uint64_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
}

#if defined(__x86_64__)
// clang's __builtin_cpu_supports does not know f16c.
bool HasF16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
__attribute__((target("f16c"))) std::uint64_t WrongByF16c(std::uint64_t first, std::uint64_t last) {
  std::uint64_t wrong = 0;
  for (std::uint64_t bits = first; bits < last; ++bits) {
    const float x = FromBits(bits);
    const auto code = static_cast<std::uint16_t>(
        _mm_cvtsi128_si32(_mm_cvtps_ph(_mm_set_ss(x), _MM_FROUND_TO_NEAREST_INT)));
    wrong += EncodeFp16(x) != code || !Same(RoundTo(kFp16, x), _cvtsh_ss(code));
  }
  return wrong;
}
#endif

std::uint64_t WrongFp16(std::uint64_t first, std::uint64_t last) {
  std::uint64_t wrong = 0;
  for (std::uint64_t bits = first; bits < last; ++bits) {
    const float x = FromBits(bits), want = RoundIndependently(kFp16, x);
    wrong += !Same(RoundTo(kFp16, x), want) || !Same(DecodeFp16(EncodeFp16(x)), want);
  }
  return wrong;
}

std::uint64_t WrongBf16(std::uint64_t first, std::uint64_t last) {
  std::uint64_t wrong = 0;
  for (std::uint64_t bits = first; bits < last; ++bits) {
    const float x = FromBits(bits), want = RoundIndependently(kBf16, x);
    wrong += !Same(RoundTo(kBf16, x), want) || !Same(DecodeBf16(EncodeBf16(x)), want);
  }
  return wrong;
}

}  // namespace

TEST_SUITE("slow") {
  TEST_CASE("fp16: fp32 patterns") {
#if defined(__x86_64__)
    if (HasF16c()) {
      CHECK(OverPatterns(WrongByF16c) == 0);
      return;
    }
#endif
    CHECK(OverPatterns(WrongFp16) == 0);
  }

  TEST_CASE("bf16: fp32 patterns") { CHECK(OverPatterns(WrongBf16) == 0); }
}

}  // namespace ada
