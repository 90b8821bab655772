// The JSON header of a safetensors file: reading it and checking it. Knows no values.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "io/shown_text.h"

namespace ada {

enum class DType : std::uint8_t {
  kF64,
  kF32,
  kF16,
  kBF16,
  kF8E4M3,
  kF8E5M2,
  kF8E4M3Fnuz,
  kF8E5M2Fnuz,
  kF8E8M0,
  kF6E2M3,
  kF6E3M2,
  kF4,
  kI64,
  kI32,
  kI16,
  kI8,
  kU64,
  kU32,
  kU16,
  kU8,
  kBool,
  kOther,  // a type of which no more is known than its name (C64); its bytes can be copied
};
std::string_view ToString(DType dtype);  // as in files: "BF16", "F8_E4M3"
int BitsOf(DType dtype);                 // of one element; 0: kOther
std::size_t BytesOf(DType dtype);        // of one element, rounded up
bool IsFloat(DType dtype);               // all that begin with F and BF

struct TensorEntry {
  std::string name;
  DType dtype = DType::kF32;
  std::string other_dtype;           // the type's name in the file, of kOther
  std::vector<std::int64_t> shape;   // empty: a scalar
  std::uint64_t begin = 0, end = 0;  // byte offsets in the file
  std::int64_t numel() const;        // 1 for a scalar
  std::string dtype_name() const;    // the type's name in the file
  std::string dtype_text() const;    // the same as it is shown
};

// Says what a file is that is given where safetensors are expected, and how to convert it. Given
// its first bytes (some 100 are enough): "is a file of PyTorch (torch.save); convert it with ..."
// and the lines of Python that do; empty for bytes of no known kind.
std::string ForeignTensorsHint(const std::string& path, std::string_view begin);

}  // namespace ada

namespace ada::safetensors {

inline constexpr std::uint64_t kLengthBytes = 8;
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the reference reader's limit

// ParseHeader returns it; all its entries were checked.
struct Header {
  std::vector<TensorEntry>
      entries;  // in the order of the bytes; offsets count from the file's start
  std::map<std::string, std::string> metadata;
};

// Reads `json` (all of the header, padding included) of a file of `file_size` bytes called `path`.
// Throws DataError with path and byte offset where JSON, keys, dtypes, shapes or offsets are wrong.
Header ParseHeader(const std::string& path, std::string_view json, std::uint64_t file_size);

// Checks that the tensors tile the `data_size` bytes from `data_start` on without hole or overlap;
// sorts them and turns offsets into those of the file. DataError as above.
void PlaceEntries(const std::string& path, std::uint64_t data_start, std::uint64_t data_size,
                  std::vector<TensorEntry>* entries);

}  // namespace ada::safetensors
