// Each function turns errno into one of the two kinds of errors, by IsOfMachine.
#include "io/data_files.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <limits>

#include "io/file.h"
#include "io/system_call.h"

namespace ada {
namespace {

// 0, or errno's number.
int LookAt(const std::string& path, struct stat* facts) {
  return Retried([&] { return stat(path.c_str(), facts); }) == 0 ? 0 : errno;
}

}  // namespace

int OpenDataFile(const std::string& path) {
  std::string problem;
  const int fd = OpenToRead(path, Pipes::kRefused, &problem);
  if (fd >= 0) return fd;
  const int error = errno;
  ThrowUnread<DataError>(path + ": cannot be opened: " + problem, error);
}

std::string ReadDataFile(const std::string& path, std::uint64_t max_bytes) {
  std::string bytes;
  const FileProblem problem =
      WithMemory(path, "read it", [&] { return TryReadFile(path, max_bytes, &bytes); });
  if (!problem.words.empty()) ThrowUnread<DataError>(problem.words, problem.error);
  return bytes;
}

std::vector<std::string> ListDataFolder(const std::string& folder) {
  std::vector<std::string> names;
  const FileProblem problem = TryListFolder(folder, &names);
  if (!problem.words.empty()) ThrowUnread<DataError>(problem.words, problem.error);
  return names;
}

bool IsDataFolder(const std::string& path) {
  struct stat facts = {};
  const int error = LookAt(path, &facts);
  if (error == 0) return S_ISDIR(facts.st_mode);
  if (error == ENOENT || error == ENOTDIR) return false;
  ThrowUnread<DataError>(CannotBeLookedAt(path, error), error);
}

bool IsThere(const std::string& path) {
  struct stat facts = {};
  const int error = LookAt(path, &facts);
  if (IsOfMachine(error)) throw MachineFailed(CannotBeLookedAt(path, error), error);
  return error == 0;
}

std::uint64_t BytesOfFile(const std::string& path) {
  struct stat facts = {};
  const int error = LookAt(path, &facts);
  if (IsOfMachine(error)) throw MachineFailed(CannotBeLookedAt(path, error), error);
  const bool is_file = error == 0 && S_ISREG(facts.st_mode);
  return is_file ? static_cast<std::uint64_t>(facts.st_size)
                 : std::numeric_limits<std::uint64_t>::max();
}

}  // namespace ada
