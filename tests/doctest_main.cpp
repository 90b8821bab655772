// The entry point of every test program: runs doctest, counts what ran, and tells CTest when every
// test case that was asked for skipped itself (skip.h), so that a skip never looks like a pass.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>
#include <set>
#include <string>

#include "skip.h"

namespace {

constexpr int kAllSkipped = 77;  // SKIP_RETURN_CODE in CMakeLists.txt

std::set<std::string>& Skipped() {
  static std::set<std::string> names;
  return names;
}
unsigned cases_run = 0;

// Prints the one line that tools/test_summary.py reads.
struct Counter : doctest::IReporter {
  explicit Counter(const doctest::ContextOptions&) {}
  void test_run_end(const doctest::TestRunStats& stats) override {
    cases_run = stats.numTestCasesPassingFilters;
    const unsigned failed = stats.numTestCasesFailed;
    const auto skipped = static_cast<unsigned>(Skipped().size());
    std::printf("[cases] %u passed, %u failed, %u skipped\n", cases_run - failed - skipped, failed,
                skipped);
  }
  void report_query(const doctest::QueryData&) override { cases_run = 1; }
  void test_run_start() override {}
  void test_case_start(const doctest::TestCaseData&) override {}
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_end(const doctest::CurrentTestCaseStats&) override {}
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}
};
DOCTEST_REGISTER_LISTENER("counter", 1, Counter);

}  // namespace

void ada::testing::Skip(const char* test_case, const std::string& reason) {
  if (Skipped().insert(test_case).second) {
    std::printf("[skipped] %s: %s\n", test_case, reason.c_str());
  }
}

[[gnu::weak]] std::string ada::testing::WhySkipAll() { return ""; }

int main(int argc, char** argv) {
  const std::string why_skip_all = ada::testing::WhySkipAll();
  if (!why_skip_all.empty()) {
    std::printf("[skipped] all: %s\n[cases] 0 passed, 0 failed, 1 skipped\n", why_skip_all.c_str());
    return kAllSkipped;
  }
  const int status = doctest::Context(argc, argv).run();
  if (status != 0) return status;
  if (cases_run == 0) {
    std::fputs("no test case matches: is its TEST_SUITE missing?\n", stderr);
    return 1;
  }
  return Skipped().size() == cases_run ? kAllSkipped : 0;
}
