// Errors are told apart by a list of those that a file may be wrong in; all others are the
// machine's.
#include "io/machine_faults.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

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

std::string CannotBeLookedAt(const std::string& path, int error) {
  return path + ": cannot be looked at: " + std::strerror(error);
}

void RefuseMachineError(const std::string& path, const std::error_code& error) {
  if (IsOfMachine(error.value()))
    throw MachineFailed(CannotBeLookedAt(path, error.value()), error.value());
}

}  // namespace ada
