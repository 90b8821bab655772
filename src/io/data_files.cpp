// Tells the file's failures from the machine's by a list of the errors that a file may be wrong in:
// all others are the machine's. Each function turns errno into one of the two kinds of errors.
#include "io/data_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>

#include "error.h"
#include "io/file.h"
#include "io/system_call.h"

namespace ada {

namespace {

// What a path, and who may follow it, can be wrong in. There are few such errors and no end of
// those that a disk, a network or a module of the system may give.
constexpr std::array<int, 13> kOfFile = {0,        ENOENT, ENOTDIR, EISDIR, ELOOP, ENAMETOOLONG,
                                         EACCES,   EPERM,  EINVAL,  EILSEQ, ENXIO, EFBIG,
                                         EOVERFLOW};

std::string AdviceAgainst(int error) {
  switch (error) {
    case EMFILE:
      return "raise the limit of open files (ulimit -n), or use fewer data.workers";
    case ENFILE:
      return "end other programs, or raise the machine's limit of open files (fs.file-max)";
    case ENOMEM:
    case EAGAIN:
    case ENOBUFS:
      return "end other programs, raise the limit of memory (ulimit -v, that of the container), or "
             "use fewer data.workers";
    default:
      return "the disk or server that holds it does not give it: try again when it does";
  }
}

}  // namespace

bool IsOfMachine(int error) {
  return std::find(kOfFile.begin(), kOfFile.end(), error) == kOfFile.end();
}

DeviceError MachineFailed(const std::string& message, int error) {
  return DeviceError(message + "; " + AdviceAgainst(error));
}

DeviceError NoMemory(const std::string& path, const std::string& purpose) {
  return MachineFailed(path + ": there is no memory to " + purpose, ENOMEM);
}

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

std::uint64_t BytesOfFile(const std::string& path) {
  struct stat facts = {};
  const int error = LookAt(path, &facts);
  if (IsOfMachine(error)) throw MachineFailed(CannotBeLookedAt(path, error), error);
  const bool is_file = error == 0 && S_ISREG(facts.st_mode);
  return is_file ? static_cast<std::uint64_t>(facts.st_size)
                 : std::numeric_limits<std::uint64_t>::max();
}

void RefuseMachineError(const std::string& path, const std::error_code& error) {
  if (IsOfMachine(error.value()))
    throw MachineFailed(CannotBeLookedAt(path, error.value()), error.value());
}

}  // namespace ada
