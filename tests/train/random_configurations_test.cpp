// A valid configuration never ends in a bug: runs drawn at random from the tables of keys, with
// resumes, evaluations and dry runs, end with 0 or with a documented exit code.
#include <doctest/doctest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <functional>
#include <new>
#include <sstream>
#include <string>
#include <vector>

#include "config/load.h"
#include "run/evaluate/evaluation_commands.h"
#include "run/plan/plan_reports.h"
#include "run/run.h"
#include "sanitizer.h"
#include "temp_folder.h"
#include "train/random_configuration.h"

namespace ada::testing {
namespace {

constexpr std::uint64_t kAtATime = 100;  // configurations of one child process
// Seconds for one of them. The slowest takes 5, and ten times as long under AddressSanitizer.
constexpr unsigned kLongest = kShadowMemory ? 300 : 60;

// How the program would end (main.cpp).
struct End {
  int code = 0;
  std::string message;
};
End EndOf(const std::function<int()>& run) {
  try {
    return {run(), ""};
  } catch (const Error& e) {
    return {e.exit_code(), e.what()};
  } catch (const std::bad_alloc&) {
    return {4, "out of memory"};
  } catch (const std::exception& e) {
    return {70, e.what()};
  }
}

// What a child tells its parent; it outlives a child that is killed.
struct Report {
  std::uint64_t seed = 0;  // of the configuration in work
  std::uint64_t trained = 0, stopped = 0, refused = 0;
  bool failed = false;
  std::array<char, 8000> message{};

  void Fail(const std::string& text) {
    failed = true;
    std::strncpy(message.data(), text.c_str(), message.size() - 1);
  }
};

class Lab {
 public:
  explicit Lab(Report& report) : report_(report), log_(telemetry::LogLevel::kError, -1) {}

  void Try(std::uint64_t seed) {
    const std::string text = RandomConfiguration(seed).Text();
    config::Config config;
    const End loaded = EndOf([&] {
      config = config::LoadText(text, "random.yaml", {}).config;
      config.output = folder_ / "run";
      config::FillDefaults(config);
      return 0;
    });
    Judge(seed, text, "load", loaded, {0, 2});
    if (loaded.code != 0) {
      ++report_.refused;
      return;
    }
    if (seed % 4 == 0) {
      std::ostringstream out;
      Judge(seed, text, "dry run", EndOf([&] { return run::DryRun(config, false, out), 0; }),
            {0, 2});
    }
    const End first = EndOf([&] { return run::Train(config, {false, true, false}, log_); });
    Judge(seed, text, "run", first, {0, 2, 5});
    ++(first.code == 0 ? report_.trained : first.code == 5 ? report_.stopped : report_.refused);
    if (first.code == 2) return;
    if (seed % 3 == 0) {
      config.train.max_steps += 2;
      const End again = EndOf([&] { return run::Train(config, {true, false, false}, log_); });
      Judge(seed, text, "resumed run", again, {0, 5});
    }
    if (seed % 5 == 0) Evaluate(seed, text, config);
  }

 private:
  void Evaluate(std::uint64_t seed, const std::string& text, const config::Config& config) {
    for (const auto& file : std::filesystem::directory_iterator(folder_ / "run/checkpoints")) {
      if (file.path().extension() != ".json") continue;
      std::ostringstream out;
      const End end =
          EndOf([&] { return run::Evaluate(config, file.path().string(), {}, out, log_), 0; });
      Judge(seed, text, "evaluation", end, {0});
      return;
    }
  }

  void Judge(std::uint64_t seed, const std::string& text, const char* what, const End& end,
             const std::vector<int>& documented) {
    const bool known =
        std::find(documented.begin(), documented.end(), end.code) != documented.end();
    if (known && (end.code == 0 || !end.message.empty())) return;
    report_.Fail("seed " + std::to_string(seed) + ": " + what + ": exit code " +
                 std::to_string(end.code) + ": " + end.message + "\n" + text);
  }

  Report& report_;
  TempFolder folder_;
  telemetry::Log log_;
};

// In memory where that can be had: a disk's syncs would take most of the time.
void TryEach(std::uint64_t first, std::uint64_t end, Report& report) {
  if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 1);
  Lab lab(report);
  for (report.seed = first; report.seed < end && !report.failed; ++report.seed) {
    alarm(kLongest);
    lab.Try(report.seed);
  }
}

// Configurations `first` to `end`, each hundred in a process of its own: one that dies is named.
Report TryAll(std::uint64_t first, std::uint64_t end) {
  Report sum;
  void* shared =
      mmap(nullptr, sizeof(Report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(shared != MAP_FAILED);
  for (std::uint64_t seed = first; seed < end && !sum.failed; seed += kAtATime) {
    Report& report = *new (shared) Report;
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      TryEach(seed, std::min(seed + kAtATime, end), report);
      _exit(0);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    if (status != 0)
      report.Fail("seed " + std::to_string(report.seed) + ": " +
                  (WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "exit") + "\n" +
                  RandomConfiguration(report.seed).Text());
    sum.trained += report.trained;
    sum.stopped += report.stopped;
    sum.refused += report.refused;
    if (report.failed) sum = report;
  }
  munmap(shared, sizeof(Report));
  return sum;
}

void Check(std::uint64_t first, std::uint64_t count) {
  // ADA_SEED: this one alone, to look at what failed.
  const char* one = std::getenv("ADA_SEED");
  if (one != nullptr) first = std::strtoull(one, nullptr, 10), count = 1;
  const Report report = TryAll(first, first + count);
  INFO(std::string(report.message.data()));
  CHECK_FALSE(report.failed);
  if (one != nullptr || report.failed) return;
  std::printf("random configurations: %llu ran to their end, %llu were stopped, %llu refused\n",
              static_cast<unsigned long long>(report.trained),
              static_cast<unsigned long long>(report.stopped),
              static_cast<unsigned long long>(report.refused));
  CHECK(report.trained >= count * 3 / 4);
}

TEST_SUITE("cpu") {
  TEST_CASE("random configurations, a few hundred: none ends in a bug") { Check(0, 300); }
}

TEST_SUITE("slow") {
  TEST_CASE("random configurations from 1000 on: none ends in a bug") { Check(1000, 500); }
  TEST_CASE("random configurations from 1500 on: none ends in a bug") { Check(1500, 500); }
  TEST_CASE("random configurations from 2000 on: none ends in a bug") { Check(2000, 500); }
  TEST_CASE("random configurations from 2500 on: none ends in a bug") { Check(2500, 500); }
}

}  // namespace
}  // namespace ada::testing
