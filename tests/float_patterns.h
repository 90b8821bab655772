// The fp32 bit patterns, of all 2^32, that a test covers, in runs of 2^16 with the same sign,
// exponent and first seven bits of the mantissa. By default these are the runs next to powers of
// two and next to the midpoints between them, where formats have their boundaries, and a sixteenth
// of the others: in all a tenth. With ADA_ALL_PATTERNS in the environment all patterns are covered,
// which takes minutes for each format.
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
