// Files that are mapped into memory, and named arrays of a .safetensors or .npz file.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/tensors/npz.h"
#include "io/memory.h"
#include "io/tensor_files/safetensors.h"

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

// --- Arrays ---

// Describes one array and where its elements lie; spans point into the mapped file.
struct TensorInFile {
  std::string name, place;  // "FILE: tensor NAME"
  DType dtype = DType::kU8;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;  // in the mapped file, of safetensors
  std::optional<ZipMember> member;   // of an .npz file: what has them, after the .npy header
  std::size_t header_bytes = 0;

  std::int64_t numel() const;
  std::uint64_t size() const { return static_cast<std::uint64_t>(numel()) * BytesOf(dtype); }
  bool is_packed() const { return member && member->deflated; }
};

using ByteBlock = std::vector<std::byte, PageAllocator<std::byte>>;

// Opening checks only headers. Arrays stay valid where the file() is kept.
class TensorFile {
 public:
  // By its ending: .npz, else safetensors. DataError: what either format does not allow. Members of
  // an .npz file that are no arrays are errors; data is not looked at.
  explicit TensorFile(const std::string& path);

  const std::string& path() const { return file_->path(); }
  const std::shared_ptr<const MappedFile>& file() const { return file_; }
  const std::vector<TensorInFile>& tensors() const { return tensors_; }
  const TensorInFile* Find(const std::string& name) const;  // null: not there
  // DataError where it is not there, with what was `expected`.
  const TensorInFile& Require(const std::string& name, const std::string& expected) const;
  // The metadata of safetensors; else empty.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  void OpenSafetensors();
  void OpenNpz();

  std::shared_ptr<const MappedFile> file_;
  std::vector<TensorInFile> tensors_;
  std::map<std::string, std::string> metadata_;
};

// A tensor's elements: in the file or, if it is packed, in `unpacked`, which must outlive the
// result. Those of an .npz file are read completely: DataError if their CRC-32 is not the one in
// the file.
std::span<const std::byte> CheckedElements(const TensorInFile& tensor, ByteBlock* unpacked);

}  // namespace ada::data
