// The descriptor stays open for CheckUnchanged, which asks for the size of this file, whatever lies
// at its path by then.
#include "data/tensors/mapped_file.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "error.h"
#include "io/data_files.h"
#include "io/system_call.h"

namespace ada::data {

MappedFile::MappedFile(std::string path) : path_(std::move(path)) {
  fd_ = OpenDataFile(path_);
  struct stat facts {};
  const bool known = fstat(fd_, &facts) == 0;
  size_ = known ? static_cast<std::size_t>(facts.st_size) : 0;
  void* mapped = size_ == 0 ? MAP_FAILED : mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd_, 0);
  if (mapped != MAP_FAILED) {
    begin_ = static_cast<const std::byte*>(mapped);
    return;
  }
  const int error = known && size_ == 0 ? 0 : errno;
  const std::string reason = error != 0 ? std::strerror(error) : "the file is empty";
  CloseFile(fd_);
  ThrowUnread<DataError>(path_ + ": cannot be mapped into memory: " + reason, error);
}

MappedFile::~MappedFile() {
  munmap(const_cast<std::byte*>(begin_), size_);
  CloseFile(fd_);
}

void MappedFile::CheckUnchanged() const {
  struct stat facts {};
  if (fstat(fd_, &facts) != 0) {
    const int error = errno;
    ThrowUnread<DataError>(path_ + ": " + std::strerror(error), error);
  }
  if (static_cast<std::size_t>(facts.st_size) >= size_) return;
  throw DataError(path_ + ": was cut to " + std::to_string(facts.st_size) + " of its " +
                  std::to_string(size_) + " bytes while it was read");
}

}  // namespace ada::data
