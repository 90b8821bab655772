// Rounding by the kernels of all instruction sets on fp32 bit patterns (float_patterns.h), against
// core's scalar conversion (which tests/core holds against an independent one on them too).
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "backend/kernel_sets.h"
#include "float_patterns.h"

namespace ada::backend::test {
namespace {

using ada::testing::kPatternRun;

// Patterns on which `kernels` and `want` differ; a NaN is a NaN.
std::uint64_t Differences(const Kernels& kernels, const Kind& kind, const Values& in,
                          const Values& want, std::uint64_t underflow, std::uint64_t overflow) {
  Memory out(kind.storage, in.size());
  BlockStats stats;
  kernels.round(in.data(), 1, out.piece(), static_cast<std::int64_t>(in.size()),
                {kind.format, true, false, &stats});
  const Values got = out.Get();
  std::uint64_t wrong = stats.underflow != static_cast<std::int64_t>(underflow);
  wrong += stats.overflow != static_cast<std::int64_t>(overflow);
  if (std::memcmp(got.data(), want.data(), got.size() * sizeof(float)) == 0) return wrong;
  for (std::size_t i = 0; i < got.size(); ++i) wrong += !ada::test::Same(got[i], want[i]);
  return wrong;
}

// The patterns first .. first + kPatternRun.
std::uint64_t WrongIn(const Kind& kind, std::uint64_t first, Values& in, Values& want) {
  const float threshold = OverflowThreshold(kind.format);
  std::uint64_t wrong = 0, underflow = 0, overflow = 0;
  for (std::uint64_t i = 0; i < kPatternRun; ++i) {
    in[i] = std::bit_cast<float>(static_cast<std::uint32_t>(first + i));
    want[i] = RoundTo(kind.format, in[i]);
    underflow += want[i] == 0 && in[i] != 0 && !std::isnan(in[i]);
    overflow += std::isfinite(in[i]) && std::fabs(in[i]) >= threshold;
  }
  for (const Kernels* kernels : KernelSets())
    wrong += Differences(*kernels, kind, in, want, underflow, overflow);
  return wrong;
}

// On all cores.
void CheckPatterns(const Kind& kind) {
  CAPTURE(kind.name);
  const std::vector<std::uint64_t> runs = ada::testing::PatternRuns();
  std::atomic<std::size_t> next = 0;
  std::atomic<std::uint64_t> wrong = 0;
  auto work = [&] {
    Values in(kPatternRun), want(kPatternRun);
    for (std::size_t i; (i = next.fetch_add(1)) < runs.size();)
      wrong += WrongIn(kind, runs[i], in, want);
  };
  std::vector<std::thread> workers;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i)
    workers.emplace_back(work);
  for (std::thread& worker : workers) worker.join();
  CHECK(wrong == 0);
}

}  // namespace

TEST_SUITE("slow") {
  TEST_CASE("fp32 patterns: fp16") { CheckPatterns({"fp16", kFp16, Storage::kF16}); }
  TEST_CASE("fp32 patterns: bf16") { CheckPatterns({"bf16", kBf16, Storage::kBF16}); }
  TEST_CASE("fp32 patterns: fp8_e4m3 in fp16") {
    CheckPatterns({"fp8_e4m3", kFp8E4M3, Storage::kF16});
  }
  TEST_CASE("fp32 patterns: fp8_e5m2_fnuz in fp32") {
    CheckPatterns({"fp8_e5m2_fnuz", {5, 2, 16, false, true, false}, Storage::kF32});
  }
}

}  // namespace ada::backend::test
