// Every task runs once, and the first failure by order is the one that is told.
#include "io/run_in_parallel.h"

#include <doctest/doctest.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

namespace ada {

TEST_SUITE("cpu") {
  TEST_CASE("in parallel: every task runs once") {
    for (const int count : {0, 1, 2, 3, 50}) {
      std::vector<std::atomic<int>> runs(static_cast<std::size_t>(count));
      std::vector<std::function<void()>> tasks;
      for (std::atomic<int>& run : runs) tasks.emplace_back([&run] { ++run; });
      RunInParallel(tasks);
      for (const std::atomic<int>& run : runs) CHECK(run == 1);
    }
  }

  TEST_CASE("in parallel: the first failure by order comes out, when all have ended") {
    for (int round = 0; round < 20; ++round) {
      std::atomic<int> runs{0};
      std::vector<std::function<void()>> tasks;
      for (int i = 0; i < 20; ++i) {
        tasks.emplace_back([i, &runs] {
          ++runs;
          if (i % 7 == 5) throw std::runtime_error("task " + std::to_string(i));
        });
      }
      std::string what;
      try {
        RunInParallel(tasks);
      } catch (const std::runtime_error& error) {
        what = error.what();
      }
      CHECK(what == "task 5");
      CHECK(runs == 20);
    }
  }
}

}  // namespace ada
