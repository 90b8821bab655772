// The pool runs every item once, in every thread where asked, and survives what bodies throw.
#include "backend/cpu/thread_pool.h"

#include <doctest/doctest.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

#include "error.h"
#include "thread_limit.h"

namespace ada::backend::cpu {

TEST_SUITE("cpu") {
  TEST_CASE("thread pool: each item runs once, by a worker of the pool") {
    for (const int threads : {1, 2, 3, 5}) {
      ThreadPool pool(threads);
      CHECK(pool.size() == threads);
      for (const std::int64_t count : {0, 1, 2, 3, 7, 1000}) {
        CAPTURE(threads);
        CAPTURE(count);
        std::vector<std::atomic<int>> runs(static_cast<std::size_t>(count));
        std::atomic<bool> strange{false};
        pool.For(count, [&](std::int64_t item, int worker) {
          ++runs[static_cast<std::size_t>(item)];
          if (worker < 0 || worker >= threads) strange = true;
        });
        CHECK(std::all_of(runs.begin(), runs.end(), [](const auto& n) { return n == 1; }));
        CHECK(!strange);
      }
    }
  }

  TEST_CASE("thread pool: a worker's number belongs to one thread at a time") {
    ThreadPool pool(4);
    std::vector<int> inside(4);  // plain on purpose: a sanitizer would see a race
    for (int round = 0; round < 200; ++round)
      pool.For(50, [&](std::int64_t, int worker) { ++inside[static_cast<std::size_t>(worker)]; });
    CHECK(inside[0] + inside[1] + inside[2] + inside[3] == 200 * 50);
  }

  TEST_CASE("thread pool: Each runs once in every thread") {
    for (const int threads : {1, 2, 5}) {
      ThreadPool pool(threads);
      std::vector<std::thread::id> ids(static_cast<std::size_t>(threads));
      pool.Each(
          [&](int worker) { ids[static_cast<std::size_t>(worker)] = std::this_thread::get_id(); });
      CHECK(ids[0] == std::this_thread::get_id());
      for (std::size_t a = 0; a < ids.size(); ++a)
        for (std::size_t b = a + 1; b < ids.size(); ++b) CHECK(ids[a] != ids[b]);
    }
  }

  TEST_CASE("thread pool: many short rounds see the results of the rounds before") {
    ThreadPool pool(3);
    std::vector<std::int64_t> values(64, 0);
    for (std::int64_t round = 1; round <= 3000; ++round) {
      const std::int64_t count = round % 64 + 1;
      pool.For(count, [&](std::int64_t item, int) {
        // A permutation of 0 .. 63 that changes with the round moves items between threads.
        ++values[static_cast<std::size_t>((item * 5 + round) % 64)];
      });
    }
    std::int64_t sum = 0, want = 0;
    for (const std::int64_t v : values) sum += v;
    for (std::int64_t round = 1; round <= 3000; ++round) want += round % 64 + 1;
    CHECK(sum == want);
  }

  TEST_CASE("thread pool: what a body throws comes out, and the pool works on") {
    for (const int threads : {1, 2, 5}) {
      CAPTURE(threads);
      ThreadPool pool(threads);
      for (int round = 0; round < 50; ++round) {
        const std::int64_t bad = round % 7;
        std::string what;
        try {
          pool.For(100, [&](std::int64_t item, int) {
            if (item == bad) throw std::runtime_error("item " + std::to_string(item));
          });
        } catch (const std::runtime_error& e) {
          what = e.what();
        }
        CHECK(what == "item " + std::to_string(bad));
        std::atomic<int> runs{0};
        pool.For(100, [&](std::int64_t, int) { ++runs; });
        CHECK(runs == 100);
      }
    }
  }

  TEST_CASE("thread pool: when every body throws, one exception comes out") {
    ThreadPool pool(4);
    for (int round = 0; round < 20; ++round) {
      CHECK_THROWS_AS(pool.For(100, [](std::int64_t, int) { throw std::logic_error("all"); }),
                      std::logic_error);
      CHECK_THROWS_AS(pool.Each([](int) { throw std::length_error("each"); }), std::length_error);
      CHECK_NOTHROW(pool.Each([](int) {}));
    }
    CHECK_THROWS_AS(pool.For(1, [](std::int64_t, int) { throw 1; }), int);
  }

  TEST_CASE(
      "thread pool: a thread that the machine refuses is an error, and the others are joined") {
    for (const int limit : {1, 2, 3, 4}) {
      CAPTURE(limit);
      const pid_t child = fork();
      REQUIRE(child >= 0);
      if (child == 0) {
        alarm(30);  // a pool that hangs
        testing::LimitThreads(limit);
        try {
          const ThreadPool pool(5);
        } catch (const DeviceError& error) {
          const bool says = std::string(error.what()).find("--threads") != std::string::npos;
          ThreadPool alone(1);
          int runs = 0;
          alone.For(10, [&](std::int64_t, int) { ++runs; });
          _exit(says && runs == 10 ? 4 : 1);
        }
        _exit(0);
      }
      int status = 0;
      REQUIRE(waitpid(child, &status, 0) == child);
      CHECK(WIFEXITED(status));
      CHECK(WEXITSTATUS(status) == 4);
    }
  }

  TEST_CASE("thread pool: pools come and go") {
    std::atomic<int> runs{0};
    for (int i = 0; i < 30; ++i) {
      ThreadPool pool(i % 4 + 1);
      if (i % 3 != 0) pool.For(10, [&](std::int64_t, int) { ++runs; });
    }
    CHECK(runs == 200);
  }
}

}  // namespace ada::backend::cpu
