// What is no regular file: read or refused without waiting, written into and never replaced.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "io/file.h"
#include "io/hash.h"
#include "io/small_files.h"
#include "io/system_call.h"
#include "temp_folder.h"

namespace ada {
namespace {

using test::Get;
using test::Put;
using testing::TempFolder;

std::string Fifo(const TempFolder& scratch) {
  const std::string path = scratch / "fifo";
  REQUIRE(mkfifo(path.c_str(), 0600) == 0);
  return path;
}

std::string Socket(const TempFolder& scratch) {
  const std::string path = scratch / "socket";
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  REQUIRE(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  close(fd);
  return path;
}

mode_t KindOf(const std::string& path) {
  struct stat status = {};
  lstat(path.c_str(), &status);
  return status.st_mode & S_IFMT;
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("a FIFO in the place of a file is refused at once") {
    const TempFolder scratch;
    const std::string fifo = Fifo(scratch), refused = ": it is a pipe, not a regular file";
    CHECK_THROWS_WITH_AS(ReadFile(fifo, 10), (fifo + ": cannot be opened" + refused).c_str(),
                         DataError);
    CHECK_THROWS_WITH_AS(HashFile(fifo), (fifo + ": cannot be opened" + refused).c_str(),
                         DataError);
  }

  TEST_CASE("where a pipe is offered its bytes are read; without a writer it is empty") {
    const TempFolder scratch;
    std::string text, problem;
    int fd = OpenToRead(Fifo(scratch), Pipes::kOffered, &problem);
    REQUIRE(fd >= 0);
    CHECK(ReadUpTo(fd, 10, &text));
    CHECK(text == "");
    CloseFile(fd);
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    fd = OpenToRead("/dev/fd/" + std::to_string(ends[0]), Pipes::kOffered, &problem);
    REQUIRE(fd >= 0);
    CHECK(write(ends[1], "offered", 7) == 7);  // after the opening: it waits for the bytes
    CHECK(ReadUpTo(fd, 7, &text));
    CHECK(text == "offered");
    for (const int open : {fd, ends[0], ends[1]}) close(open);
  }

  TEST_CASE("a device is written into and stays one, also behind a link") {
    const TempFolder scratch;
    const std::string link = scratch / "link";
    std::filesystem::create_symlink("/dev/null", link);
    WriteFileAtomically(link, "x");
    CHECK(KindOf(link) == S_IFLNK);
    WriteFileAtomically("/dev/null", "x");
    CHECK(KindOf("/dev/null") == S_IFCHR);
    const std::string full = "/dev/full: cannot be written: No space left on device";
    CHECK_THROWS_WITH_AS(WriteFileAtomically("/dev/full", "x"), full.c_str(), OutputError);
    const std::string device = scratch / "device";
    if (mknod(device.c_str(), S_IFCHR | 0600, makedev(1, 3)) == 0) {  // root only
      WriteFileAtomically(device, "x");
      CHECK(KindOf(device) == S_IFCHR);
    }
  }

  TEST_CASE("a FIFO is written into") {
    const TempFolder scratch;
    const std::string fifo = Fifo(scratch);
    const int reader = open(fifo.c_str(), O_RDONLY | O_NONBLOCK);
    WriteFileAtomically(fifo, "bytes");
    char bytes[6] = {};
    CHECK(read(reader, bytes, 5) == 5);
    CHECK(std::string(bytes) == "bytes");
    CHECK(KindOf(fifo) == S_IFIFO);
    close(reader);
  }

  TEST_CASE("links to files are replaced, the system's own and sockets are refused") {
    const TempFolder scratch;
    const std::string file = scratch / "file", link = scratch / "link";
    Put(file, "old");
    for (const char* to : {"file", "nowhere", "link"}) {
      std::filesystem::remove(link);
      std::filesystem::create_symlink(to, link);
      WriteFileAtomically(link, "new");
      CHECK(KindOf(link) == S_IFREG);
      CHECK(Get(link) == "new");
      CHECK(Get(file) == "old");
    }
    const int fd = open(file.c_str(), O_WRONLY);
    const std::string own = "/proc/self/fd/" + std::to_string(fd);
    CHECK_THROWS_WITH_AS(
        WriteFileAtomically(own, "x"),
        (own + ": is the system's own link to a file, not its name; expected the name of a file "
               "to write")
            .c_str(),
        OutputError);
    close(fd);
    const std::string socket = Socket(scratch);
    CHECK_THROWS_AS(WriteFileAtomically(socket, "x"), OutputError);
    CHECK(KindOf(socket) == S_IFSOCK);
  }

  TEST_CASE("a file that was deleted, replaced or moved away is no longer the one of its name") {
    const TempFolder scratch;
    const std::string path = scratch / "file", other = scratch / "other";
    Put(path, "x");
    const int fd = open(path.c_str(), O_RDONLY);
    CHECK(IsStillNamed(fd, path));
    const int device = open("/dev/null", O_WRONLY);
    CHECK(IsStillNamed(device, path));
    close(device);
    std::filesystem::rename(path, other);
    CHECK_FALSE(IsStillNamed(fd, path));
    Put(path, "x");
    CHECK_FALSE(IsStillNamed(fd, path));
    std::filesystem::rename(other, path);
    CHECK(IsStillNamed(fd, path));
    std::filesystem::remove(path);
    CHECK_FALSE(IsStillNamed(fd, path));
    close(fd);
  }

  TEST_CASE("folders: a missing parent is not made anew, names are listed") {
    const TempFolder scratch;
    CreateFolder(scratch / "a");
    CreateFolder(scratch / "a");
    std::filesystem::create_directory_symlink("a", scratch / "link");
    CreateFolder(scratch / "link");
    CHECK_THROWS_WITH_AS(
        CreateFolder(scratch / "none/b"),
        (scratch / "none/b" + ": the folder cannot be created: No such file or directory").c_str(),
        OutputError);
    Put(scratch / "a/file", "x");
    CHECK(ListFolder(scratch / "a") == std::vector<std::string>{"file"});
    CHECK(ListFolder(scratch / "none").empty());
    CHECK_THROWS_WITH_AS(
        ListFolder(scratch / "a/file"),
        (scratch / "a/file" + ": the folder cannot be read: Not a directory").c_str(), DataError);
  }
}

}  // namespace ada
