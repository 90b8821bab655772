// Each function turns errno into one of the two kinds of errors, by IsOfMachine.
#include "core/data_files.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "core/error.h"
#include "core/file.h"
#include "core/machine_error.h"
#include "core/system_call.h"

namespace ada {
namespace {

// 0, or errno's number.
int LookAt(const std::string& path, struct stat* facts) {
  return Retried([&] { return stat(path.c_str(), facts); }) == 0 ? 0 : errno;
}

std::string CannotBeLookedAt(const std::string& path, int error) {
  return path + ": cannot be looked at: " + std::strerror(error);
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

void RefuseMachineError(const std::string& path, const std::error_code& error) {
  if (IsOfMachine(error.value()))
    throw MachineFailed(CannotBeLookedAt(path, error.value()), error.value());
}

}  // namespace ada
