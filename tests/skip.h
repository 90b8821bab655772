// Ends a test case that cannot run here (data or hardware is missing) as skipped, with its reason
// in sight. For doctest, which knows skipping only before a case starts.
#pragma once
#include <doctest/doctest.h>

#include <string>

namespace ada::testing {

// Counts `test_case` as skipped and prints the reason once.
void Skip(const char* test_case, const std::string& reason);

// Why no test case of this program can run here; "": they can. A program that needs a GPU has its
// own.
std::string WhySkipAll();

}  // namespace ada::testing

// To be used in the test case itself (it returns), before its first assertion.
#define ADA_SKIP(reason)                                                               \
  do {                                                                                 \
    ::ada::testing::Skip(::doctest::getContextOptions()->currentTest->m_name, reason); \
    return;                                                                            \
  } while (false)
