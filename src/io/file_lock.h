// A folder that one process has for itself.
#pragma once
#include <optional>
#include <string>

namespace ada {

// An exclusive lock on `<folder>/.lock` that the system
// releases when the process ends, for whatever reason. The empty file stays. Excludes other
// processes as well as a second lock in the same process.
class FileLock {
 public:
  // nullopt: another process holds it. OutputError: the folder is missing or not writable.
  static std::optional<FileLock> TryLock(const std::string& folder);
  // Whether some process holds it now. The query takes no lock, so it does not block others.
  static bool IsHeld(const std::string& folder);

  // A lock that was moved from holds nothing.
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) noexcept;
  ~FileLock();

 private:
  explicit FileLock(int fd) : fd_(fd) {}
  int fd_ = -1;
};

}  // namespace ada
