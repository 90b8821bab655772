// Reading with a limit, writing all or nothing, folders. Devices and pipes: special_file_test.cpp.
#include "io/file.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "io/small_files.h"
#include "temp_folder.h"

namespace ada {
namespace {

using test::FileCount;
using test::Get;
using test::Put;
using testing::TempFolder;

// Makes every file of this process end at `bytes`, as a full disk would.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : old_handler_(signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &old_);
    rlimit limit = old_;
    limit.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &old_);
    signal(SIGXFSZ, old_handler_);
  }

 private:
  rlimit old_{};
  sighandler_t old_handler_;
};

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("reading") {
    const TempFolder scratch;
    const std::string path = scratch / "file", bytes("a\0b\n\xff", 5);
    Put(path, bytes);
    CHECK(ReadFile(path, 5) == bytes);
    CHECK(ReadFile("/proc/self/comm", 100).size() > 1);  // its size reads as 0
    CHECK_THROWS_WITH_AS(
        ReadFile(path, 4),
        (path + ": has 5 B (5 bytes); at most 4 B (4 bytes) are read of such a file").c_str(),
        DataError);
    CHECK_THROWS_WITH_AS(ReadFile("/dev/zero", 100'000),
                         "/dev/zero: cannot be opened: it is a device, not a regular file",
                         DataError);
    CHECK_THROWS_WITH_AS(
        ReadFile("/proc/self/status", 100),
        "/proc/self/status: has no known size; at most 100 B (100 bytes) are read of such a file",
        DataError);
    // Only the size of a giant file is asked for.
    Put(path, "");
    std::filesystem::resize_file(path, std::uintmax_t{100} << 30);
    CHECK_THROWS_WITH_AS(
        ReadFile(path, std::uint64_t{1} << 30),
        (path +
         ": has 100.0 GiB (107374182400 bytes); at most 1.0 GiB (1073741824 bytes) are read of "
         "such a file")
            .c_str(),
        DataError);
    CHECK_THROWS_WITH_AS(
        ReadFile<ConfigError>(scratch / "none", 5),
        (scratch / "none" + ": cannot be opened: No such file or directory").c_str(), ConfigError);
    CHECK_THROWS_WITH_AS(
        ReadFile(scratch.path(), 5),
        (scratch.path() + ": cannot be opened: it is a folder, not a regular file").c_str(),
        DataError);
    Put(path, "");
    CHECK(ReadFile(path, 0) == "");
  }

  TEST_CASE("a file is replaced whole, or stays") {
    const TempFolder scratch;
    const std::string path = scratch / "file";
    WriteFileAtomically(path, "one");
    CHECK(Get(path) == "one");
    WriteFileAtomically(path, "two");
    CHECK(Get(path) == "two");
    {
      AtomicFile unfinished(path);
      unfinished.Write("three");
      CHECK(Get(path) == "two");
      CHECK(FileCount(scratch.path()) == 2);
    }
    CHECK(Get(path) == "two");
    {
      const FileSizeLimit limit(1 << 16);
      CHECK_THROWS_WITH_AS(WriteFileAtomically(path, std::string(1 << 17, 'x')),
                           (path + ": cannot be written: File too large").c_str(), OutputError);
    }
    CHECK(Get(path) == "two");
    CHECK(FileCount(scratch.path()) == 1);  // nothing temporary is left
  }

  TEST_CASE("writing where nothing can be written") {
    const TempFolder scratch;
    CHECK_THROWS_WITH_AS(
        WriteFileAtomically(scratch / "none/file", "x"),
        (scratch / "none/file" + ": cannot create a file in its folder: No such file or directory")
            .c_str(),
        OutputError);
    std::filesystem::create_directory(scratch / "folder");
    CHECK_THROWS_WITH_AS(
        WriteFileAtomically(scratch / "folder", "x"),
        (scratch / "folder" + ": is a folder; expected the name of a file to write").c_str(),
        OutputError);
    CHECK(FileCount(scratch.path()) == 1);
    CreateFolders(scratch / "folder/a/b");
    CreateFolders(scratch / "folder/a/b");
    CHECK(std::filesystem::is_directory(scratch / "folder/a/b"));
    Put(scratch / "file", "x");
    for (const char* below : {"file", "file/x"}) {
      CHECK_THROWS_WITH_AS(
          CreateFolders(scratch / below),
          (scratch / below + ": the folder cannot be created: Not a directory").c_str(),
          OutputError);
    }
  }

  TEST_CASE("two writers and a reader never meet a mixture") {
    const TempFolder scratch;
    const std::string path = scratch / "file";
    const std::string a(20'000, 'a'), b(30'000, 'b');
    WriteFileAtomically(path, a);
    std::atomic<int> running = 2;
    const auto write = [&](const std::string& bytes) {
      for (int i = 0; i < 15; ++i) WriteFileAtomically(path, bytes);
      --running;
    };
    std::thread first(write, a), second(write, b);
    int mixed = 0;
    while (running > 0) {
      const std::string seen = Get(path);
      mixed += seen != a && seen != b;
    }
    first.join();
    second.join();
    CHECK(mixed == 0);
    CHECK(FileCount(scratch.path()) == 1);
  }

  TEST_CASE("what a killed writer left goes, the rest stays") {
    const TempFolder scratch;
    for (const char* name : {".ada-123-0.tmp", ".ada-9-17.tmp", ".adax", "a.tmp", ".lock"}) {
      Put(scratch / name, "x");
    }
    RemoveStaleTemporaries(scratch.path());
    CHECK(FileCount(scratch.path()) == 3);
    CHECK_FALSE(std::filesystem::exists(scratch / ".ada-9-17.tmp"));
    RemoveStaleTemporaries(scratch / "none");
  }
}

}  // namespace ada
