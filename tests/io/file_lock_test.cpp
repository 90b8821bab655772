// Locks between processes and within one; asking whether one is held disturbs nobody.
#include "io/file_lock.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "error.h"
#include "io/file.h"
#include "io/small_files.h"
#include "temp_folder.h"

namespace ada {
namespace {

using test::FileCount;
using testing::TempFolder;

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("a lock is exclusive and moves") {
    const TempFolder scratch;
    std::optional<FileLock> lock = FileLock::TryLock(scratch.path());
    REQUIRE(lock);
    CHECK_FALSE(FileLock::TryLock(scratch.path()));
    FileLock moved = std::move(*lock);
    lock.reset();
    CHECK_FALSE(FileLock::TryLock(scratch.path()));
    { const FileLock last = std::move(moved); }
    CHECK(FileLock::TryLock(scratch.path()));
    const std::optional<FileLock> on_deleted = FileLock::TryLock(scratch.path());
    std::filesystem::remove(scratch / ".lock");
    CHECK(FileLock::TryLock(scratch.path()));  // a new file, a new lock
    CHECK_THROWS_WITH_AS(
        FileLock::TryLock(scratch / "none"),
        (scratch / "none/.lock" + ": cannot be opened: No such file or directory").c_str(),
        OutputError);
  }

  TEST_CASE("a lock dies with its process") {
    const TempFolder scratch;
    int ready[2];
    REQUIRE(pipe(ready) == 0);
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      const std::optional<FileLock> lock = FileLock::TryLock(scratch.path());
      const char answer = lock ? 'y' : 'n';
      if (write(ready[1], &answer, 1) != 1) _exit(1);
      while (true) pause();
    }
    char answer = 0;
    CHECK(read(ready[0], &answer, 1) == 1);
    CHECK(answer == 'y');
    CHECK_FALSE(FileLock::TryLock(scratch.path()));
    kill(child, SIGKILL);
    CHECK(waitpid(child, nullptr, 0) == child);
    CHECK(FileLock::TryLock(scratch.path()));
    close(ready[0]);
    close(ready[1]);
  }

  TEST_CASE("asking whether a lock is held never keeps another from taking it") {
    const TempFolder scratch;
    CHECK_FALSE(FileLock::IsHeld(scratch.path()));
    CHECK(FileCount(scratch.path()) == 0);
    { const auto first = FileLock::TryLock(scratch.path()); }
    std::atomic<bool> done = false;
    std::thread asking([&] {
      while (!done) FileLock::IsHeld(scratch.path());
    });
    int refused = 0, unseen = 0;
    for (int i = 0; i < 20'000; ++i) {
      const auto lock = FileLock::TryLock(scratch.path());
      refused += !lock;
      if (i % 100 == 0) unseen += !FileLock::IsHeld(scratch.path());
    }
    done = true;
    asking.join();
    CHECK(refused == 0);
    CHECK(unseen == 0);
    CHECK_FALSE(FileLock::IsHeld(scratch.path()));
  }
}

}  // namespace ada
