// Reading and folders; every failure becomes a message with errno's words. Writing:
// atomic_file.cpp.
#include "io/file.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

#include "io/system_call.h"
#include "io/text.h"

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

// Fills `bytes`, or returns what is wrong. The size that the system says is only the first answer:
// files of /proc say 0, and others grow.
FileProblem ReadAll(int fd, const std::string& path, std::uint64_t max_bytes, std::string* bytes) {
  const auto size = static_cast<std::uint64_t>(SizeOfFile(fd));
  if (size > max_bytes) return {TooLargeText(path, size, max_bytes)};
  bytes->reserve(size);
  if (!ReadUpTo(fd, max_bytes + 1, bytes)) {
    const int error = errno;
    return {path + ": cannot be read: " + std::strerror(error), error};
  }
  if (bytes->size() > max_bytes) return {TooLargeText(path, 0, max_bytes)};
  return {};
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

std::string TooLargeText(const std::string& path, std::uint64_t size, std::uint64_t most) {
  const std::string has =
      size > 0 ? HumanBytes(size) + " (" + std::to_string(size) + " bytes)" : "no known size";
  return path + ": has " + has + "; at most " + HumanBytes(most) + " (" + std::to_string(most) +
         " bytes) are read of such a file";
}

FileProblem TryReadFile(const std::string& path, std::uint64_t max_bytes, std::string* bytes) {
  bytes->clear();
  std::string refusal;
  const int fd = OpenToRead(path, Pipes::kRefused, &refusal);
  if (fd < 0) {
    const int error = errno;
    return {path + ": cannot be opened: " + refusal, error};
  }
  const FileProblem problem = ReadAll(fd, path, max_bytes, bytes);
  CloseFile(fd);
  if (!problem.words.empty()) std::string().swap(*bytes);
  return problem;
}

void RemoveStaleTemporaries(const std::string& folder) {
  std::vector<std::string> names;
  TryListFolder(folder, &names);  // what cannot be listed is told by whoever needs the folder
  for (const std::string& name : names) {
    if (IsTemporaryName(name)) unlink((folder + "/" + name).c_str());
  }
}

void CreateFolders(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error && !std::filesystem::is_directory(folder, error) && !error) {
    error = std::make_error_code(std::errc::not_a_directory);
  }
  if (error) throw OutputError(folder + ": the folder cannot be created: " + error.message());
}

void CreateFolder(const std::string& folder) {
  if (Retried([&] { return mkdir(folder.c_str(), 0777); }) == 0) return;
  int error = errno;
  struct stat status = {};
  if (error == EEXIST) {  // a link to a folder elsewhere is one, too
    if (stat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode)) return;
    error = ENOTDIR;
  }
  throw OutputError(folder + ": the folder cannot be created: " + std::strerror(error));
}

bool IsFolder(const std::string& path) {
  struct stat status = {};
  if (Retried([&] { return stat(path.c_str(), &status); }) == 0) return S_ISDIR(status.st_mode);
  if (errno == ENOENT || errno == ENOTDIR) return false;
  const int error = errno;
  ThrowUnread<DataError>(path + ": cannot be looked at: " + std::strerror(error), error);
}

FileProblem TryListFolder(const std::string& folder, std::vector<std::string>* names) {
  names->clear();
  errno = 0;
  std::unique_ptr<DIR, int (*)(DIR*)> open(nullptr, &closedir);
  do {
    open.reset(opendir(folder.c_str()));
  } while (!open && errno == EINTR);
  if (!open && errno == ENOENT) return {};
  while (open) {
    errno = 0;
    const dirent* const entry = readdir(open.get());
    if (entry == nullptr && errno == EINTR) continue;
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names->emplace_back(name);
  }
  const int error = errno;
  if (error == 0) return {};
  names->clear();
  return {folder + ": the folder cannot be read: " + std::strerror(error), error};
}

}  // namespace ada
