// Reader and writer of safetensors files (github.com/huggingface/safetensors, README "Format"):
// 8 bytes header length, a JSON header, tensors. Knows no layer names.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "io/tensor_files/safetensors_header.h"

namespace ada {

// A checked file, whose tensors are read when they are asked for. A file that is cut meanwhile is a
// DataError of that read (replacing it by rename is fine).
class SafetensorsFile {
 public:
  // Throws DataError naming file and byte offset: length, JSON, duplicate keys, dtypes, shapes,
  // offsets that overlap, leave holes or end elsewhere than the file.
  static SafetensorsFile Open(const std::string& path);
  SafetensorsFile(SafetensorsFile&& other) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&& other) noexcept;
  ~SafetensorsFile();

  const std::string& path() const { return path_; }
  const std::vector<TensorEntry>& entries() const { return entries_; }  // in the order of the bytes
  const TensorEntry* Find(std::string_view name) const;                 // nullptr: not there
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  // The text under `key`; empty where there is none.
  std::string MetadataOf(const std::string& key) const;

  // Both throw DataError where there is no such tensor.
  std::vector<std::byte> Bytes(std::string_view name) const;
  // Reads types that IsFloat names: exactly, but F64 rounded to nearest. DataError for others.
  // F6 and F4 are packed from the lowest bit of each byte on, F8_E8M0 is 2^(code - 127) or NaN
  // (OCP Microscaling Formats 1.0).
  std::vector<float> ReadF32(std::string_view name) const;
  // Reads a tensor of F64. DataError for others.
  std::vector<double> ReadF64(std::string_view name) const;

 private:
  SafetensorsFile() = default;
  const TensorEntry& Get(std::string_view name) const;
  void Read(std::uint64_t offset, void* to, std::size_t bytes) const;
  std::string path_;
  int fd_ = -1;
  std::vector<TensorEntry> entries_;
  std::unordered_map<std::string, std::size_t> index_;
  std::map<std::string, std::string> metadata_;
};

// Collects tensors, then streams them. Bytes are not copied: they must live until the write. Equal
// calls give equal files. Checkpoints and exports use it, once for each file.
class SafetensorsWriter {
 public:
  void SetMetadata(std::map<std::string, std::string> metadata) { metadata_ = std::move(metadata); }
  // InternalError: a name twice, "__metadata__", not UTF-8, or bytes that do not fit the shape.
  void Add(std::string name, DType dtype, std::vector<std::int64_t> shape,
           std::span<const std::byte> bytes);
  // Adds a tensor of another file as it stands there, whatever its type.
  void AddCopy(const TensorEntry& entry, std::span<const std::byte> bytes);
  void Add(std::string name, std::vector<std::int64_t> shape, std::span<const float> values) {
    Add(std::move(name), DType::kF32, std::move(shape), std::as_bytes(values));
  }
  // Writes beside and renames; returns HashBytes of the file. OutputError with the system's reason.
  std::string WriteAtomically(const std::string& path) const;

 private:
  std::string Header() const;
  struct Item {
    std::string name, dtype;
    std::vector<std::int64_t> shape;
    std::span<const std::byte> bytes;
  };
  void Take(Item item);
  std::vector<Item> items_;
  std::unordered_set<std::string> names_;
  std::map<std::string, std::string> metadata_;
};

// What a file of one tensor begins with; its values, row-major, follow.
std::string SafetensorsHead(const std::string& name, DType dtype,
                            const std::vector<std::int64_t>& shape);

}  // namespace ada
