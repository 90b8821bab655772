// A file in memory as the system pages it in: opening reads nothing, and memory that it takes can
// be had back.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace ada::data {

// Several threads may read its bytes. Spans into it are valid as long as it exists, so a user of a
// span must hold a shared_ptr to the file.
class MappedFile {
 public:
  // DataError: missing, no regular file, empty, may not be read or mapped.
  explicit MappedFile(std::string path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {begin_, size_}; }
  // DataError if the file was truncated: reading the missing part would kill the process.
  void CheckUnchanged() const;

 private:
  std::string path_;
  int fd_ = -1;
  const std::byte* begin_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace ada::data
