// Operations on whole files: reading with a size limit, writing that leaves either the old file or
// the new one, and folders. Logs, which are appended to, are in telemetry/.
#pragma once
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "error.h"

namespace ada {

// Whether errno's value `error` is such a failure. Not 0, nor errors that say that a path does not
// exist, is not a file, or may not be read; all others are.
bool IsOfMachine(int error);

// DeviceError with `message`, followed by advice on what helps against `error`.
DeviceError MachineFailed(const std::string& message, int error);

// Throws MachineFailed where the machine failed, else E.
template <class E>
[[noreturn]] void ThrowUnread(const std::string& message, int error) {
  if (IsOfMachine(error)) throw MachineFailed(message, error);
  throw E(message);
}

// "PATH: there is no memory to <purpose>", and what helps.
DeviceError NoMemory(const std::string& path, const std::string& purpose);

// Returns the result of `work`; throws NoMemory if it runs out of memory.
template <class Work>
auto WithMemory(const std::string& path, const char* purpose, const Work& work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    throw NoMemory(path, purpose);
  }
}
// What a message says of a path that stat refuses: "PATH: cannot be looked at: Permission denied".
std::string CannotBeLookedAt(const std::string& path, int error);
// Throws DeviceError if std::filesystem's `error` about `path` is the machine's fault.
void RefuseMachineError(const std::string& path, const std::error_code& error);

// What is wrong with a file or folder: a text, "" if nothing is; and errno's value if the system
// refused, otherwise 0.
struct FileProblem {
  std::string words = {};
  int error = 0;
};

// Reads the whole file, which must be a regular one, into `bytes`, or returns what is wrong ("FILE:
// cannot be opened: No such file or directory", TooLargeText).
FileProblem TryReadFile(const std::string& path, std::uint64_t max_bytes, std::string* bytes);

// Returns the whole file; throws E (DataError, ConfigError ...) with the text of TryReadFile, or
// DeviceError if the machine failed.
template <class E = DataError>
std::string ReadFile(const std::string& path, std::uint64_t max_bytes) {
  std::string bytes;
  const FileProblem problem = TryReadFile(path, max_bytes, &bytes);
  if (!problem.words.empty()) ThrowUnread<E>(problem.words, problem.error);
  return bytes;
}

// Message for a file of `size` bytes, which is more than the `most` that are read of its kind; 0:
// its size is unknown.
std::string TooLargeText(const std::string& path, std::uint64_t size, std::uint64_t most);

// Writes a file that is there whole or not at all. What lies at `path` decides how:
//   nothing, or a regular file: beside it under a name of its own; Commit makes that durable and
//     renames it to `path`. Without Commit (an exception) it goes, and `path` stays as it was.
//   a symbolic link to one, or to nothing: the same; the link is replaced, not followed
//   a character device or FIFO (/dev/null, `>(command)`), or a link to one: is written into, as the
//     bytes come
//   anything else, and the system's own links to a regular file (/dev/stdout): refused
// All throw OutputError with the reason.
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
  void CreateBeside();
  [[noreturn]] void Fail(const char* doing) const;  // with errno's words
  std::string path_, temporary_;                    // "": written into directly
  int fd_ = -1;
};

void WriteFileAtomically(const std::string& path, std::string_view bytes);

// For files that are written in place: what several paths lead to (a symbolic link, hard links)
// would change for all of them. Where `path` is such a link to a regular file, or to nothing, it
// becomes a file of its own with the first `bytes` of it. Throws OutputError.
void MakeOwnFile(const std::string& path, std::int64_t bytes);

// Whether this is the name of a temporary file that an AtomicFile has not yet renamed.
bool IsTemporaryName(std::string_view name);
// Removes the temporary files that a killed process left in `folder`. Files of running processes
// that hold the folder's lock are safe if the caller holds the lock. Other files stay.
void RemoveStaleTemporaries(const std::string& folder);

// Creates the folder and its parents where missing; OutputError with the system's reason.
void CreateFolders(const std::string& folder);
// Creates the folder if it is missing. OutputError also if its parent is missing: what was deleted
// while the program ran is not created again.
void CreateFolder(const std::string& folder);

// Says whether a folder is there. Where the system cannot tell it throws DataError (a folder that
// may not be looked into) or DeviceError (an error of the disk).
bool IsFolder(const std::string& path);

// Puts the names in `folder` into `names`, in no order, or returns what is wrong. A missing folder
// has none.
FileProblem TryListFolder(const std::string& folder, std::vector<std::string>* names);

// The names; throws E with the words of TryListFolder, or DeviceError where the machine failed.
template <class E = DataError>
std::vector<std::string> ListFolder(const std::string& folder) {
  std::vector<std::string> names;
  const FileProblem problem = TryListFolder(folder, &names);
  if (!problem.words.empty()) ThrowUnread<E>(problem.words, problem.error);
  return names;
}

}  // namespace ada
