// The recordings of tests/golden/pictures: files, and tensors of bytes.
#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "io/tensor_files/safetensors.h"

namespace ada::data {

inline std::string RecordedPath(const std::string& name) {
  return std::string(ADA_SOURCE_DIR) + "/tests/golden/pictures/" + name;
}

inline SafetensorsFile Recorded(const std::string& name) {
  return SafetensorsFile::Open(RecordedPath(name));
}

inline std::vector<std::uint8_t> RecordedBytes(const SafetensorsFile& file,
                                               const std::string& name) {
  const std::vector<std::byte> bytes = file.Bytes(name);
  std::vector<std::uint8_t> values(bytes.size());
  if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

inline bool SamePixels(const std::vector<std::uint8_t>& pixels, const SafetensorsFile& file,
                       const std::string& name) {
  return pixels == RecordedBytes(file, name);
}

}  // namespace ada::data
