// POSIX calls behind file.h; every failure becomes a message with errno's words.
#include "core/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

namespace ada {
namespace {

constexpr std::string_view kTemporaryPrefix = ".ada-", kTemporarySuffix = ".tmp";

std::string FolderOf(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// File systems without fsync answer EINVAL or ENOTSUP; there is nothing more to do on them.
bool Sync(int fd) { return fsync(fd) == 0 || errno == EINVAL || errno == ENOTSUP; }

bool SyncFolder(const std::string& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return errno == EACCES;  // a folder may be writable but not readable
  const bool good = Sync(fd);
  const int error = errno;
  close(fd);
  errno = error;
  return good;
}

// Appends all of `fd` to `bytes`; false with errno set, or with errno 0 beyond `max_bytes`.
bool ReadAll(int fd, std::uint64_t max_bytes, std::string* bytes) {
  struct stat status {};
  if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) {
    const auto size = static_cast<std::uint64_t>(status.st_size);
    if (size > max_bytes) {
      errno = 0;
      return false;
    }
    bytes->reserve(size);
  }
  std::vector<char> piece(std::size_t{1} << 16);
  while (true) {
    const ssize_t count = read(fd, piece.data(), piece.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    if (count == 0) return true;
    if (bytes->size() + static_cast<std::uint64_t>(count) > max_bytes) {
      errno = 0;
      return false;
    }
    bytes->append(piece.data(), static_cast<std::size_t>(count));
  }
}

}  // namespace

std::string TryReadFile(const std::string& path, std::uint64_t max_bytes, std::string* bytes) {
  bytes->clear();
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return path + ": cannot be opened: " + std::strerror(errno);
  const bool good = ReadAll(fd, max_bytes, bytes);
  const int error = errno;
  close(fd);
  if (good) return "";
  bytes->clear();
  if (error != 0) return path + ": cannot be read: " + std::strerror(error);
  return path + ": larger than " + std::to_string(max_bytes) + " bytes, the most that is read here";
}

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)) {
  static std::atomic<unsigned> counter = 0;
  const std::string start =
      FolderOf(path_) + "/" + std::string(kTemporaryPrefix) + std::to_string(getpid()) + "-";
  do {  // another machine on the same file system may have our process id
    temporary_ = start + std::to_string(counter++) + std::string(kTemporarySuffix);
    fd_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (fd_ < 0 && errno == EEXIST);
  if (fd_ < 0) Fail("cannot create a file in its folder");
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) close(fd_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

void AtomicFile::Fail(const char* doing) const {
  throw OutputError(path_ + ": " + doing + ": " + std::strerror(errno));
}

void AtomicFile::Write(std::span<const std::byte> bytes) {
  ADA_CHECK(fd_ >= 0);
  while (!bytes.empty()) {
    const ssize_t count = write(fd_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) Fail("cannot be written");
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

void AtomicFile::Commit() {
  ADA_CHECK(fd_ >= 0);
  if (!Sync(fd_)) Fail("cannot be written to the disk");
  if (close(std::exchange(fd_, -1)) != 0) Fail("cannot be closed");
  if (rename(temporary_.c_str(), path_.c_str()) != 0) Fail("cannot be put in its place");
  temporary_.clear();
  if (!SyncFolder(FolderOf(path_))) Fail("its folder cannot be written to the disk");
}

void WriteFileAtomically(const std::string& path, std::string_view bytes) {
  AtomicFile file(path);
  file.Write(bytes);
  file.Commit();
}

void RemoveStaleTemporaries(const std::string& folder) {
  std::error_code error;
  std::vector<std::filesystem::path> stale;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with(kTemporaryPrefix) && name.ends_with(kTemporarySuffix)) {
      stale.push_back(it->path());
    }
  }
  for (const auto& path : stale) unlink(path.c_str());
}

void CreateFolders(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error && !std::filesystem::is_directory(folder, error) && !error) {
    error = std::make_error_code(std::errc::not_a_directory);
  }
  if (error) throw OutputError(folder + ": the folder cannot be created: " + error.message());
}

std::optional<FileLock> FileLock::TryLock(const std::string& folder) {
  const std::string path = folder + "/.lock";
  while (true) {
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) throw OutputError(path + ": cannot be opened: " + std::strerror(errno));
    FileLock lock(fd);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK) return std::nullopt;
      if (errno == EINTR) continue;
      throw OutputError(path + ": cannot be locked: " + std::strerror(errno));
    }
    // The file may have been deleted, or replaced, between open and flock: such a lock protects
    // nothing.
    struct stat ours {
    }, there{};
    if (fstat(fd, &ours) == 0 && stat(path.c_str(), &there) == 0 && ours.st_ino == there.st_ino &&
        ours.st_dev == there.st_dev) {
      return lock;
    }
  }
}

FileLock::FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

FileLock& FileLock::operator=(FileLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

FileLock::~FileLock() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace ada
