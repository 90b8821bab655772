// A folder that one process has for itself.
#pragma once
#include <optional>
#include <string>

namespace ada {

// An exclusive lock on `<folder>/.lock` that the system releases when the process ends, however it
// ends. The empty file stays. Works between processes and between two locks in one process.
class FileLock {
 public:
  // nullopt: another process holds it. OutputError: the folder is missing or not writable.
  static std::optional<FileLock> TryLock(const std::string& folder);
  // Whether some process holds it now. Asking locks nothing: it stands in nobody's way.
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
