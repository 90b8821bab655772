// All 2^32 fp32 patterns: fp16 against the processor's own conversion, bf16 against double.
#include <doctest/doctest.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <atomic>
#include <thread>
#include <vector>

#include "core/independent.h"

namespace ada {
namespace {

using test::RoundIndependently;
using test::Same;
constexpr std::uint64_t kPatterns = std::uint64_t{1} << 32;

// Counts of wrong results over all patterns, computed by `count(first, last)` in pieces.
template <class Count>
std::uint64_t OverAllPatterns(Count count) {
  constexpr std::uint64_t kPiece = std::uint64_t{1} << 24;
  std::atomic<std::uint64_t> next = 0, wrong = 0;
  const auto work = [&] {
    for (std::uint64_t first; (first = next.fetch_add(kPiece)) < kPatterns;) {
      wrong += count(first, first + kPiece);
    }
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
__attribute__((target("f16c"))) std::uint64_t WrongByF16c(std::uint64_t first, std::uint64_t last) {
  std::uint64_t wrong = 0;
  for (std::uint64_t bits = first; bits < last; ++bits) {
    const float x = FromBits(bits);
    const auto code = static_cast<std::uint16_t>(_cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT));
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
  TEST_CASE("fp16: all fp32 patterns") {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("f16c")) {
      CHECK(OverAllPatterns(WrongByF16c) == 0);
      return;
    }
#endif
    CHECK(OverAllPatterns(WrongFp16) == 0);
  }

  TEST_CASE("bf16: all fp32 patterns") { CHECK(OverAllPatterns(WrongBf16) == 0); }
}

}  // namespace ada
