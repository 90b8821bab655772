// Writing: what lies at a path decides whether it is replaced by a rename or written into.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "io/file.h"
#include "io/system_call.h"

namespace ada {
namespace {

constexpr std::string_view kTemporaryPrefix = ".ada-", kTemporarySuffix = ".tmp";

// Returns the folder that a path lies in; "." for a bare name.
std::string FolderOf(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// A rename is durable only when the folder's own entry is on the disk.
bool SyncFolder(const std::string& folder) {
  const int fd = OpenFile(folder, O_RDONLY | O_DIRECTORY);
  if (fd < 0) return errno == EACCES;  // a folder may be writable but not readable
  const bool good = SyncFile(fd);
  const int error = errno;
  CloseFile(fd);
  errno = error;
  return good;
}

// A link that the system itself keeps, such as /dev/stdout or /proc/self/fd/1.
bool IsSystemsLink(const std::string& path) {
  struct stat status = {};
  if (lstat(path.c_str(), &status) != 0 || !S_ISLNK(status.st_mode)) return false;
  std::error_code ignored;
  const std::string folder = std::filesystem::canonical(FolderOf(path), ignored).string();
  return folder == "/dev" || folder.starts_with("/proc/");
}

[[noreturn]] void Refuse(const std::string& path, const std::string& what) {
  throw OutputError(path + ": " + what + "; expected the name of a file to write");
}

// Whether `path` is written into, not replaced.
bool IsWrittenInto(const std::string& path) {
  struct stat status = {};
  if (Retried([&] { return stat(path.c_str(), &status); }) != 0) {
    // Nothing is there, or a link that leads nowhere. Why else a file cannot be made there, its
    // creation tells.
    if (errno == ENOENT || errno == ENOTDIR || errno == ELOOP) return false;
    throw OutputError(path + ": cannot be looked at: " + std::strerror(errno));
  }
  if (S_ISCHR(status.st_mode) || S_ISFIFO(status.st_mode)) return true;
  if (S_ISDIR(status.st_mode)) Refuse(path, "is a folder");
  if (!S_ISREG(status.st_mode)) Refuse(path, "is a block device or socket");
  if (IsSystemsLink(path)) Refuse(path, "is the system's own link to a file, not its name");
  return false;
}

}  // namespace

bool IsTemporaryName(std::string_view name) {
  return name.starts_with(kTemporaryPrefix) && name.ends_with(kTemporarySuffix);
}

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)) {
  if (!IsWrittenInto(path_)) {
    CreateBeside();
    return;
  }
  fd_ = OpenFile(path_, O_WRONLY | O_NOCTTY);
  if (fd_ < 0) Fail("cannot be opened");
}

void AtomicFile::CreateBeside() {
  static std::atomic<unsigned> counter = 0;
  const std::string start =
      FolderOf(path_) + "/" + std::string(kTemporaryPrefix) + std::to_string(getpid()) + "-";
  do {  // another machine on the same file system may have our process id
    temporary_ = start + std::to_string(counter++) + std::string(kTemporarySuffix);
    fd_ = OpenFile(temporary_, O_WRONLY | O_CREAT | O_EXCL);
  } while (fd_ < 0 && errno == EEXIST);
  if (fd_ < 0) Fail("cannot create a file in its folder");
  // The mode of a file that is created here follows the umask where nothing is replaced.
  struct stat before = {};
  constexpr mode_t kPermissions = 0777;
  // The file that is replaced keeps who may read it; another owner's may not be ours to set.
  if (stat(path_.c_str(), &before) == 0) (void)fchmod(fd_, before.st_mode & kPermissions);
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) CloseFile(fd_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

void AtomicFile::Fail(const char* doing) const {
  throw OutputError(path_ + ": " + doing + ": " + std::strerror(errno));
}

void AtomicFile::Write(std::span<const std::byte> bytes) {
  ADA_CHECK(fd_ >= 0);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (WriteAll(fd_, text) < text.size()) Fail("cannot be written");
}

void AtomicFile::Commit() {
  ADA_CHECK(fd_ >= 0);
  if (!SyncFile(fd_)) Fail("cannot be written to the disk");
  // Some file systems (NFS) report a failed write only on close: so the file is closed before it is
  // renamed.
  if (CloseFile(std::exchange(fd_, -1)) != 0) Fail("cannot be closed");
  if (temporary_.empty()) return;
  if (RenameFile(temporary_, path_) != 0) Fail("cannot be put in its place");
  temporary_.clear();
  if (!SyncFolder(FolderOf(path_))) Fail("its folder cannot be written to the disk");
}

void WriteFileAtomically(const std::string& path, std::string_view bytes) {
  AtomicFile file(path);
  file.Write(bytes);
  file.Commit();
}

namespace {

// Whether writing into the file at `path` would change one that another path names: a regular file
// behind a link, one of several names, or what a link that leads nowhere would create.
bool IsShared(const std::string& path) {
  struct stat there = {}, link = {};
  if (lstat(path.c_str(), &link) != 0) return false;
  if (stat(path.c_str(), &there) != 0) return S_ISLNK(link.st_mode) && errno == ENOENT;
  return S_ISREG(there.st_mode) && (S_ISLNK(link.st_mode) || there.st_nlink > 1);
}

}  // namespace

void MakeOwnFile(const std::string& path, std::int64_t bytes) {
  if (!IsShared(path)) return;
  AtomicFile own(path);
  const int fd = OpenFile(path, O_RDONLY);
  const auto fail = [&] {
    const std::string reason = std::strerror(errno);
    if (fd >= 0) CloseFile(fd);
    throw OutputError(path + ": is a link, and cannot be copied: " + reason);
  };
  if (fd < 0 && errno != ENOENT) fail();
  constexpr std::int64_t kPiece = 1 << 20;
  for (std::int64_t at = 0; fd >= 0 && at < bytes;) {
    const auto piece = TextAt(fd, at, static_cast<std::size_t>(std::min(kPiece, bytes - at)));
    if (!piece) fail();
    if (piece->empty()) break;
    own.Write(*piece);
    at += static_cast<std::int64_t>(piece->size());
  }
  if (fd >= 0) CloseFile(fd);
  own.Commit();
}

}  // namespace ada
