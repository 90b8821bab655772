// Which of the 2^32 fp32 bit patterns a test goes through, in runs of 2^16 that have the sign, the
// exponent and the first seven bits of the mantissa in common. By default these are the runs beside
// powers of two and beside the middles between them, where formats have their edges, and a
// sixteenth of the others: a tenth of all. With ADA_ALL_PATTERNS in the environment it is all,
// which takes minutes for a format.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <vector>

namespace ada::testing {

inline constexpr std::uint64_t kPatternRun = 1 << 16;

// The first pattern of each run.
inline std::vector<std::uint64_t> PatternRuns() {
  const bool all = std::getenv("ADA_ALL_PATTERNS") != nullptr;
  std::vector<std::uint64_t> runs;
  for (std::uint64_t run = 0; run < 1 << 16; ++run) {
    const std::uint64_t mantissa = run % 128;
    const bool edge = mantissa <= 1 || mantissa == 63 || mantissa == 64 || mantissa == 127;
    // Another sixteenth of each exponent's.
    const bool one_of_sixteen = run % 16 == run / 128 % 16;
    if (all || edge || one_of_sixteen) runs.push_back(run * kPatternRun);
  }
  return runs;
}

}  // namespace ada::testing
