// Files as a whole: reading with a size limit, writing that leaves the old file or the new one and
// nothing between, and a folder lock that dies with its process. Appending logs are telemetry's.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/error.h"

namespace ada {

// Reads the whole regular file into `bytes` and returns "", or returns what is wrong in words
// ("FILE: No such file or directory", a folder, larger than `max_bytes`).
std::string TryReadFile(const std::string& path, std::uint64_t max_bytes, std::string* bytes);

// The whole file; throws E (DataError, ConfigError ...) with the words of TryReadFile.
template <class E = DataError>
std::string ReadFile(const std::string& path, std::uint64_t max_bytes) {
  std::string bytes;
  const std::string problem = TryReadFile(path, max_bytes, &bytes);
  if (!problem.empty()) throw E(problem);
  return bytes;
}

// Writes beside `path` under a name of its own; Commit makes it durable and renames it to `path`.
// Without Commit (an exception) the temporary file goes and `path` stays as it was. A symbolic link
// at `path` is replaced, not followed. All throw OutputError with the system's reason.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void Write(std::span<const std::byte> bytes);
  void Write(std::string_view bytes) { Write(std::as_bytes(std::span(bytes))); }
  void Commit();  // fsync, rename, fsync of the folder; once

 private:
  [[noreturn]] void Fail(const char* doing) const;  // with errno's words
  std::string path_, temporary_;
  int fd_ = -1;
};

void WriteFileAtomically(const std::string& path, std::string_view bytes);

// Removes the temporary files that a killed process left in `folder` (not those of running ones
// that hold the folder's lock: call it with the lock held). Other files stay.
void RemoveStaleTemporaries(const std::string& folder);

// Creates the folder and its parents where missing; OutputError with the system's reason.
void CreateFolders(const std::string& folder);

// An exclusive lock on `<folder>/.lock` that the system releases when the process ends, however it
// ends. The empty file stays. Works between processes and between two locks in one process.
class FileLock {
 public:
  // nullopt: another process holds it. OutputError: the folder is missing or not writable.
  static std::optional<FileLock> TryLock(const std::string& folder);
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) noexcept;
  ~FileLock();

 private:
  explicit FileLock(int fd) : fd_(fd) {}
  int fd_ = -1;
};

}  // namespace ada
