// Writing safetensors: header from the collected tensors, then their bytes straight from where they
// lie.
#include <nlohmann/json.hpp>

#include "error.h"
#include "io/file.h"
#include "io/hash.h"
#include "io/tensor_files/safetensors.h"
#include "io/tensor_files/safetensors_header.h"

namespace ada {
namespace {

// A JSON string; InternalError where `text` is not UTF-8 or holds a NUL.
std::string Quoted(const std::string& text) {
  ADA_CHECK(text.find('\0') == std::string::npos);
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    throw InternalError("a name or value for a safetensors header is not UTF-8");
  }
}

// A tensor's entry in the header; its bytes begin at `offset`, which moves after them.
std::string EntryText(const std::string& name, const std::string& dtype,
                      const std::vector<std::int64_t>& shape, std::size_t bytes,
                      std::size_t& offset) {
  const std::size_t begin = offset;
  offset += bytes;
  return Quoted(name) + ":{\"dtype\":" + Quoted(dtype) +
         ",\"shape\":" + nlohmann::json(shape).dump() + ",\"data_offsets\":[" +
         std::to_string(begin) + "," + std::to_string(offset) + "]}";
}

// How many bits the values of a tensor take, of which a byte may hold several.
std::size_t BitsOf(DType dtype, const std::vector<std::int64_t>& shape) {
  auto bits = static_cast<std::size_t>(ada::BitsOf(dtype));
  for (const std::int64_t size : shape) {
    ADA_CHECK(size >= 0);
    bits *= static_cast<std::size_t>(size);
  }
  return bits;
}

// The tensors start at a multiple of 8 bytes.
void Pad(std::string& json) { json.resize((json.size() + 7) / 8 * 8, ' '); }

}  // namespace

std::string SafetensorsHead(const std::string& name, DType dtype,
                            const std::vector<std::int64_t>& shape) {
  const std::size_t bits = BitsOf(dtype, shape);
  ADA_CHECK(bits % 8 == 0);
  std::size_t offset = 0;
  std::string json =
      "{" + EntryText(name, std::string(ToString(dtype)), shape, bits / 8, offset) + "}";
  Pad(json);
  const std::uint64_t length = json.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + json;
}

void SafetensorsWriter::Add(std::string name, DType dtype, std::vector<std::int64_t> shape,
                            std::span<const std::byte> bytes) {
  const std::size_t expected = BitsOf(dtype, shape);
  if (expected != 8 * bytes.size()) {
    throw InternalError("tensor '" + name + "' has " + std::to_string(bytes.size()) +
                        " bytes; its shape and dtype need " + std::to_string((expected + 7) / 8));
  }
  Take({std::move(name), std::string(ToString(dtype)), std::move(shape), bytes});
}

void SafetensorsWriter::AddCopy(const TensorEntry& entry, std::span<const std::byte> bytes) {
  Take({entry.name, entry.dtype_name(), entry.shape, bytes});
}

void SafetensorsWriter::Take(Item item) {
  Quoted(item.name);
  ADA_CHECK(item.name != "__metadata__");
  if (!names_.insert(item.name).second)
    throw InternalError("tensor '" + item.name + "' added twice");
  items_.push_back(std::move(item));
}

std::string SafetensorsWriter::Header() const {
  std::string json = "{";
  if (!metadata_.empty()) {
    json += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata_) {
      if (json.back() != '{') json += ",";
      json += Quoted(key) + ":" + Quoted(value);
    }
    json += "}";
  }
  std::size_t offset = 0;
  for (const Item& item : items_) {
    if (json.size() > 1) json += ",";
    json += EntryText(item.name, item.dtype, item.shape, item.bytes.size(), offset);
  }
  json += "}";
  Pad(json);
  ADA_CHECK(json.size() <= safetensors::kMaxHeaderBytes);
  return json;
}

std::string SafetensorsWriter::WriteAtomically(const std::string& path) const {
  const std::string header = Header();
  const std::uint64_t length = header.size();
  AtomicFile file(path);
  Hasher hasher;
  const auto write = [&](std::span<const std::byte> bytes) {
    file.Write(bytes);
    hasher.Update(bytes);
  };
  write(std::as_bytes(std::span(&length, 1)));
  write(std::as_bytes(std::span(header)));
  for (const Item& item : items_) write(item.bytes);
  file.Commit();
  return hasher.Hex();
}

}  // namespace ada
