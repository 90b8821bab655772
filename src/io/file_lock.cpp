// A lock of the open file description (F_OFD_SETLK), which unlike flock can be asked for without
// being taken. Where the system knows none (EINVAL), flock stands in; asking then takes it shared
// for a moment.
#include "io/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "error.h"
#include "io/system_call.h"

namespace ada {
namespace {

constexpr const char* kName = "/.lock";

// kBusy: another description holds it; kFailed: errno says why.
enum class Answer { kFree, kBusy, kFailed };

Answer AnswerOf(int result) {
  if (result == 0) return Answer::kFree;
  return errno == EAGAIN || errno == EACCES ? Answer::kBusy : Answer::kFailed;
}

// Takes the lock without waiting.
Answer Take(int fd) {
  struct flock whole = {};
  whole.l_type = F_WRLCK;
  const int result = Retried([&] { return fcntl(fd, F_OFD_SETLK, &whole); });
  if (result == 0 || errno != EINVAL) return AnswerOf(result);
  return AnswerOf(Retried([&] { return flock(fd, LOCK_EX | LOCK_NB); }));
}

// Asks without taking; the result may be out of date when it returns.
Answer Ask(int fd) {
  struct flock whole = {};
  whole.l_type = F_WRLCK;
  const int result = Retried([&] { return fcntl(fd, F_OFD_GETLK, &whole); });
  if (result == 0) return whole.l_type == F_UNLCK ? Answer::kFree : Answer::kBusy;
  if (errno != EINVAL) return Answer::kFailed;
  return AnswerOf(Retried([&] { return flock(fd, LOCK_SH | LOCK_NB); }));
}

}  // namespace

std::optional<FileLock> FileLock::TryLock(const std::string& folder) {
  const std::string path = folder + kName;
  while (true) {
    const int fd = OpenFile(path, O_RDWR | O_CREAT | O_NONBLOCK);
    if (fd < 0) throw OutputError(path + ": cannot be opened: " + std::strerror(errno));
    FileLock lock(fd);
    const Answer answer = Take(fd);
    if (answer == Answer::kBusy) return std::nullopt;
    if (answer == Answer::kFailed) {
      throw OutputError(path + ": cannot be locked: " + std::strerror(errno));
    }
    // The file may have been deleted or replaced before it was locked: such a lock protects
    // nothing.
    if (IsStillNamed(fd, path)) return lock;
  }
}

bool FileLock::IsHeld(const std::string& folder) {
  std::string ignored;
  const int fd = OpenToRead(folder + kName, Pipes::kRefused, &ignored);
  if (fd < 0) return false;
  const bool held = Ask(fd) == Answer::kBusy;
  CloseFile(fd);
  return held;
}

FileLock::FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

FileLock& FileLock::operator=(FileLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

FileLock::~FileLock() {
  if (fd_ >= 0) CloseFile(fd_);
}

}  // namespace ada
