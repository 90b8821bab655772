// Calls are made again on EINTR. Functions that fail after another call restore errno, so that
// callers can say why.
#include "io/system_call.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace ada {
namespace {

constexpr std::size_t kPiece = std::size_t{1} << 16;

std::string KindOf(mode_t mode) {
  return S_ISFIFO(mode) ? "a pipe" : S_ISDIR(mode) ? "a folder" : "a device";
}

// error: errno's number; 0: what is there is no regular file, but `kind`.
int RefuseToRead(int fd, int error, std::string* problem, const std::string& kind = "") {
  if (fd >= 0) CloseFile(fd);
  *problem = error == 0 ? "it is " + kind + ", not a regular file" : std::strerror(error);
  errno = error;
  return -1;
}

}  // namespace

int OpenFile(const std::string& path, int flags) {
  return Retried([&] { return open(path.c_str(), flags | O_CLOEXEC, 0666); });
}

// Without fsync a file system answers EINVAL or ENOTSUP; there is nothing more to do then. So do
// devices and pipes, and EROFS where they lie on a file system that is only read.
bool SyncFile(int fd) {
  if (Retried([&] { return fsync(fd); }) == 0 || errno == EINVAL || errno == ENOTSUP) return true;
  const int error = errno;
  struct stat status = {};
  const bool regular = fstat(fd, &status) != 0 || S_ISREG(status.st_mode);
  errno = error;
  return error == EROFS && !regular;
}

int CloseFile(int fd) { return close(fd) == 0 || errno == EINTR ? 0 : -1; }

int RenameFile(const std::string& from, const std::string& to) {
  return Retried([&] { return rename(from.c_str(), to.c_str()); });
}

int OpenToRead(const std::string& path, Pipes pipes, std::string* problem) {
  const int fd = OpenFile(path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return RefuseToRead(fd, errno, problem);
  struct stat status = {};
  if (fstat(fd, &status) != 0) return RefuseToRead(fd, errno, problem);
  if (S_ISREG(status.st_mode)) return fd;
  if (pipes == Pipes::kRefused) return RefuseToRead(fd, 0, problem, KindOf(status.st_mode));
  const int flags = fcntl(fd, F_GETFL);  // bytes that the writer has not written yet are waited for
  if (flags < 0 || fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) < 0) {
    return RefuseToRead(fd, errno, problem);
  }
  return fd;
}

bool ReadUpTo(int fd, std::size_t most, std::string* bytes) {
  char piece[kPiece];
  while (bytes->size() < most) {
    const std::size_t wanted = std::min(sizeof piece, most - bytes->size());
    const ssize_t count = Retried([&] { return read(fd, piece, wanted); });
    if (count < 0) return false;
    if (count == 0) break;
    bytes->append(piece, static_cast<std::size_t>(count));
  }
  return true;
}

std::size_t ReadAt(int fd, std::uint64_t offset, void* to, std::size_t bytes) {
  std::size_t done = 0;
  errno = 0;
  while (done < bytes) {
    char* const at = static_cast<char*>(to) + done;
    const auto from = static_cast<off_t>(offset + done);
    const ssize_t count = Retried([&] { return pread(fd, at, bytes - done, from); });
    if (count <= 0) break;
    done += static_cast<std::size_t>(count);
    errno = 0;  // an interrupted call may have left its mark
  }
  return done;
}

std::size_t WriteAll(int fd, std::string_view bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count =
        Retried([&] { return write(fd, bytes.data() + done, bytes.size() - done); });
    if (count < 0) break;
    done += static_cast<std::size_t>(count);
  }
  return done;
}

std::optional<std::string> TextAt(int fd, std::int64_t offset, std::size_t size) {
  std::string text(size, '\0');
  const std::size_t count = ReadAt(fd, static_cast<std::uint64_t>(offset), text.data(), size);
  if (count < size && errno != 0) return std::nullopt;
  text.resize(count);
  return text;
}

std::int64_t SizeOfFile(int fd) {
  struct stat status = {};
  return fstat(fd, &status) == 0 ? static_cast<std::int64_t>(status.st_size) : 0;
}

bool IsStillNamed(int fd, const std::string& path) {
  struct stat ours = {}, there = {};
  if (fstat(fd, &ours) != 0 || !S_ISREG(ours.st_mode)) return true;
  if (Retried([&] { return stat(path.c_str(), &there); }) != 0) {
    return errno != ENOENT && errno != ENOTDIR && errno != ELOOP && errno != ESTALE;
  }
  return ours.st_nlink > 0 && ours.st_ino == there.st_ino && ours.st_dev == there.st_dev;
}

}  // namespace ada
