// Safetensors files made and read without the program's own reader and writer: headers as text,
// bytes as the test says.
#pragma once
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace ada::testing {

struct RawTensor {
  std::string name, dtype;
  std::vector<std::int64_t> shape;
  std::string bytes;
};

template <class T>
std::string BytesOfValues(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}
inline RawTensor F32(std::string name, std::vector<std::int64_t> shape,
                     const std::vector<float>& values) {
  return {std::move(name), "F32", std::move(shape), BytesOfValues(values)};
}

inline std::string WithLength(std::uint64_t length, const std::string& rest) {
  return BytesOfValues<std::uint64_t>({length}) + rest;
}

inline std::string TensorFile(const std::vector<RawTensor>& tensors,
                              const nlohmann::ordered_json& metadata = {}) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.is_null()) header["__metadata__"] = metadata;
  std::string bytes;
  for (const RawTensor& t : tensors) {
    header[t.name] = {{"dtype", t.dtype},
                      {"shape", t.shape},
                      {"data_offsets", {bytes.size(), bytes.size() + t.bytes.size()}}};
    bytes += t.bytes;
  }
  const std::string json = header.dump();
  return WithLength(json.size(), json + bytes);
}

struct ParsedFile {
  nlohmann::json header;
  std::string data;
  RawTensor Get(const std::string& name) const {
    const nlohmann::json& entry = header.at(name);
    const std::size_t begin = entry.at("data_offsets").at(0), end = entry.at("data_offsets").at(1);
    return {name, entry.at("dtype"), entry.at("shape"), data.substr(begin, end - begin)};
  }
  std::vector<float> Floats(const std::string& name) const {
    const RawTensor tensor = Get(name);
    if (tensor.dtype != "F32") throw std::runtime_error(name + " is " + tensor.dtype);
    std::vector<float> values(tensor.bytes.size() / 4);
    if (!values.empty()) std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
    return values;
  }
};
inline ParsedFile ParseTensorFile(const std::string& bytes) {
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  return {nlohmann::json::parse(bytes.substr(8, length)), bytes.substr(8 + length)};
}

}  // namespace ada::testing
