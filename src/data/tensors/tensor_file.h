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

#include "io/memory.h"
#include "io/tensor_files/safetensors.h"

namespace ada::data {

// --- NPZ files: a ZIP of NPY files ---

// The header of a .npy file (NumPy Enhancement Proposal 1, "A Simple File Format for NumPy
// Arrays"): magic string, version, header length, and a Python dictionary of element type, order
// and shape.
struct NpyHeader {
  DType dtype = DType::kU8;
  std::vector<std::int64_t> shape;
  std::size_t data_offset = 0;  // where the elements begin
};

// A header takes no more.
inline constexpr std::size_t kMostNpyHeader = 64 << 10;

// Whether a file has the magic string of NumPy.
bool BeginsAsNpy(std::span<const std::byte> bytes);
// Parses the header at the beginning of `bytes`, which may be cut after kMostNpyHeader bytes.
// `place` begins every message. DataError: another magic string or version, damage, and arrays that
// are refused: of objects, records, complex numbers or text, of big-endian numbers, in Fortran
// order.
NpyHeader ParseNpyHeader(std::span<const std::byte> bytes, const std::string& place);

// A member of a ZIP file (PKWARE's APPNOTE.TXT) that lies in memory. The readers know the part of
// the format that numpy.savez writes, sizes of 64 bits included: stored or deflated, not encrypted,
// one volume.
struct ZipMember {
  std::string name;
  bool deflated = false;
  std::span<const std::byte> stored;  // its bytes in the file
  std::uint64_t size = 0;             // unpacked
  std::uint32_t crc = 0;              // of the unpacked bytes
};

// `path` begins every message. DataError: no ZIP file, truncated, offsets or sizes that do not fit,
// other methods, a name twice.
std::vector<ZipMember> ReadZip(std::span<const std::byte> file, const std::string& path);

// The first bytes of a member, at most `most`. `place` begins the message of a DataError.
std::vector<std::byte> BeginningOf(const ZipMember& member, std::size_t most,
                                   const std::string& place);
// DataError where the data of a stored member has another CRC-32 than the file says.
void CheckSum(const ZipMember& member, const std::string& place);
// Unpacks a deflated member after its first `skip` bytes into `to`, which takes all the rest, and
// checks the sum of the whole. DataError where the data is damaged, or more or less than it says.
void Unpack(const ZipMember& member, std::size_t skip, std::span<std::byte> to,
            const std::string& place);

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
