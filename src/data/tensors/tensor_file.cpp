// Files mapped into memory, and both kinds of files of arrays as one list.
#include "data/tensors/tensor_file.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "error.h"
#include "io/data_files.h"
#include "io/shown_text.h"
#include "io/system_call.h"
#include "io/text.h"

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

// --- Arrays ---

namespace {

std::string PlaceOf(const std::string& path, const std::string& name) {
  return path + ": tensor " + Visible(name);
}

}  // namespace

std::int64_t TensorInFile::numel() const {
  std::int64_t elements = 1;
  for (const std::int64_t size : shape) elements *= size;
  return elements;
}

TensorFile::TensorFile(const std::string& path) : file_(std::make_shared<const MappedFile>(path)) {
  path.ends_with(".npz") ? OpenNpz() : OpenSafetensors();
}

const TensorInFile* TensorFile::Find(const std::string& name) const {
  for (const TensorInFile& tensor : tensors_)
    if (tensor.name == name) return &tensor;
  return nullptr;
}

const TensorInFile& TensorFile::Require(const std::string& name,
                                        const std::string& expected) const {
  if (const TensorInFile* found = Find(name)) return *found;
  constexpr std::size_t kNamed = 8;
  std::vector<std::string> names;
  for (const TensorInFile& tensor : tensors_) names.push_back(Visible(tensor.name));
  throw DataError(path() + ": holds no tensor " + name + "; expected " + expected + "; it has " +
                  (names.empty() ? "none" : FirstNames(names, kNamed)));
}

void TensorFile::OpenSafetensors() {
  const SafetensorsFile file = SafetensorsFile::Open(path());
  metadata_ = file.metadata();
  for (const TensorEntry& entry : file.entries()) {
    // The header is read by a descriptor of its own, which may have got another file than the
    // mapping did.
    if (entry.end > file_->bytes().size())
      throw DataError(path() + ": was replaced while it was opened");
    TensorInFile tensor;
    tensor.name = entry.name;
    tensor.place = PlaceOf(path(), entry.name);
    tensor.dtype = entry.dtype;
    tensor.shape = entry.shape;
    tensor.bytes = file_->bytes().subspan(entry.begin, entry.end - entry.begin);
    tensors_.push_back(std::move(tensor));
  }
}

void TensorFile::OpenNpz() {
  for (ZipMember& member : ReadZip(file_->bytes(), path())) {
    if (!member.name.ends_with(".npy"))
      throw DataError(path() + ": holds " + Visible(member.name) + ", which is no array (.npy)");
    TensorInFile tensor;
    tensor.name = member.name.substr(0, member.name.size() - 4);
    tensor.place = PlaceOf(path(), tensor.name);
    const std::vector<std::byte> beginning = BeginningOf(member, kMostNpyHeader, tensor.place);
    const NpyHeader header = ParseNpyHeader(beginning, tensor.place);
    tensor.dtype = header.dtype;
    tensor.shape = header.shape;
    tensor.header_bytes = header.data_offset;
    if (header.data_offset + tensor.size() != member.size)
      throw DataError(tensor.place + ": " + DimsText(tensor.shape) + " of " +
                      std::string(ToString(tensor.dtype)) + " takes " +
                      std::to_string(tensor.size()) + " bytes; the file has " +
                      std::to_string(member.size - header.data_offset));
    tensor.member = std::move(member);
    tensors_.push_back(std::move(tensor));
  }
}

std::span<const std::byte> CheckedElements(const TensorInFile& tensor, ByteBlock* unpacked) {
  if (!tensor.member) return tensor.bytes;
  if (!tensor.is_packed()) {
    CheckSum(*tensor.member, tensor.place);
    return tensor.member->stored.subspan(tensor.header_bytes);
  }
  ByteBlock block(static_cast<std::size_t>(tensor.size()));
  Unpack(*tensor.member, tensor.header_bytes, block, tensor.place);
  *unpacked = std::move(block);
  return *unpacked;
}

}  // namespace ada::data
