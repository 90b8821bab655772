// The JSON header of a safetensors file: reading it and checking it. Knows no values.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "io/shown_text.h"
#include "io/tensor_files/tensor_entry.h"

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

namespace ada {

// Says what a file is that is given where safetensors are expected, and how to convert it. Given
// its first bytes (some 100 are enough): "is a file of PyTorch (torch.save); convert it with ..."
// and the lines of Python that do; empty for bytes of no known kind.
std::string ForeignTensorsHint(const std::string& path, std::string_view begin);

}  // namespace ada
