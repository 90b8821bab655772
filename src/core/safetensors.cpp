// Opening, mapping and converting; the header's own checks are in safetensors_header.cpp.
#include "core/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "core/error.h"
#include "core/number_format.h"
#include "core/safetensors_header.h"

namespace ada {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

struct DTypeInfo {
  std::string_view name;
  std::size_t bytes;
};
constexpr std::array<DTypeInfo, 15> kDTypes = {{{"F64", 8},
                                                {"F32", 4},
                                                {"F16", 2},
                                                {"BF16", 2},
                                                {"F8_E4M3", 1},
                                                {"F8_E5M2", 1},
                                                {"I64", 8},
                                                {"I32", 4},
                                                {"I16", 2},
                                                {"I8", 1},
                                                {"U64", 8},
                                                {"U32", 4},
                                                {"U16", 2},
                                                {"U8", 1},
                                                {"BOOL", 1}}};

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

// The header's length, checked against the file's.
std::uint64_t HeaderLength(const std::string& path, const std::byte* map, std::uint64_t size) {
  std::uint64_t length = 0;
  std::memcpy(&length, map, sizeof length);
  const std::string what =
      path + ": byte 0: the header's length is " + std::to_string(length) + " bytes, ";
  if (length > size - safetensors::kLengthBytes) {
    throw DataError(what + "but the file has " + std::to_string(size) +
                    " in all: it is truncated, or no safetensors file");
  }
  if (length > safetensors::kMaxHeaderBytes) {
    throw DataError(what + "more than the " + std::to_string(safetensors::kMaxHeaderBytes) +
                    " that are allowed");
  }
  return length;
}

// The value of an 8-bit code (OCP 8-bit floating point specification): sign, exponent, mantissa.
float DecodeFp8(const NumberFormat& format, unsigned code) {
  const unsigned mantissa = code & ((1u << format.mantissa_bits) - 1);
  const unsigned top = (1u << format.exponent_bits) - 1;
  const unsigned exponent = (code >> format.mantissa_bits) & top;
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  float magnitude = 0;
  if (format.has_inf && exponent == top) {
    magnitude = mantissa == 0 ? INFINITY : kNan;
  } else if (!format.has_inf && (code & 0x7f) == 0x7f) {
    magnitude = kNan;
  } else {
    const unsigned digits = exponent == 0 ? mantissa : mantissa + (1u << format.mantissa_bits);
    const int power = exponent == 0 ? 1 : static_cast<int>(exponent);
    magnitude = std::ldexp(static_cast<float>(digits), power - format.bias - format.mantissa_bits);
  }
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

template <class Stored, class Convert>
std::vector<float> ConvertAll(std::span<const std::byte> bytes, Convert convert) {
  std::vector<float> values(bytes.size() / sizeof(Stored));
  for (std::size_t i = 0; i < values.size(); ++i) {
    Stored stored;  // copied: tensors need not be aligned
    std::memcpy(&stored, bytes.data() + i * sizeof(Stored), sizeof(Stored));
    values[i] = convert(stored);
  }
  return values;
}

std::vector<float> ConvertFp8(std::span<const std::byte> bytes, const NumberFormat& format) {
  std::array<float, 256> values;
  for (unsigned code = 0; code < 256; ++code) values[code] = DecodeFp8(format, code);
  return ConvertAll<std::uint8_t>(bytes, [&values](std::uint8_t code) { return values[code]; });
}

}  // namespace

std::string_view ToString(DType dtype) { return kDTypes[static_cast<std::size_t>(dtype)].name; }
std::size_t BytesOf(DType dtype) { return kDTypes[static_cast<std::size_t>(dtype)].bytes; }

bool IsFloat(DType dtype) { return dtype <= DType::kF8E5M2; }

std::int64_t TensorEntry::numel() const {
  std::int64_t product = 1;
  for (const std::int64_t size : shape) product *= size;
  return product;
}

SafetensorsFile SafetensorsFile::Open(const std::string& path) {
  const auto fail = [&path](const char* doing) {
    throw DataError(path + ": " + doing + ": " + std::strerror(errno));
  };
  const FileDescriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) fail("cannot be opened");
  struct stat status {};
  if (fstat(fd.get(), &status) != 0) fail("cannot be read");
  if (!S_ISREG(status.st_mode)) throw DataError(path + ": is not a regular file");
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (size < safetensors::kLengthBytes) {
    throw DataError(path + ": byte " + std::to_string(size) +
                    ": the file ends within its first 8 bytes, the header's length");
  }
  SafetensorsFile file;
  file.path_ = path;
  void* const map = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (map == MAP_FAILED) fail("cannot be mapped");
  file.map_ = static_cast<const std::byte*>(map);
  file.size_ = size;

  const std::uint64_t length = HeaderLength(path, file.map_, size);
  const std::string_view json(reinterpret_cast<const char*>(file.map_ + safetensors::kLengthBytes),
                              length);
  safetensors::Header header = safetensors::ParseHeader(path, json, size);
  file.entries_ = std::move(header.entries);
  file.metadata_ = std::move(header.metadata);
  for (std::size_t i = 0; i < file.entries_.size(); ++i) file.index_[file.entries_[i].name] = i;
  return file;
}

SafetensorsFile::SafetensorsFile(SafetensorsFile&& other) noexcept { *this = std::move(other); }

SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(map_, other.map_);
  std::swap(size_, other.size_);
  std::swap(entries_, other.entries_);
  std::swap(index_, other.index_);
  std::swap(metadata_, other.metadata_);
  return *this;
}

SafetensorsFile::~SafetensorsFile() {
  if (map_ != nullptr) munmap(const_cast<std::byte*>(map_), size_);
}

const TensorEntry* SafetensorsFile::Find(std::string_view name) const {
  const auto found = index_.find(std::string(name));
  return found == index_.end() ? nullptr : &entries_[found->second];
}

const TensorEntry& SafetensorsFile::Get(std::string_view name) const {
  const TensorEntry* entry = Find(name);
  if (entry == nullptr) throw DataError(path_ + ": has no tensor '" + std::string(name) + "'");
  return *entry;
}

std::span<const std::byte> SafetensorsFile::Bytes(std::string_view name) const {
  const TensorEntry& entry = Get(name);
  return {map_ + entry.begin, entry.end - entry.begin};
}

std::vector<float> SafetensorsFile::ReadF32(std::string_view name) const {
  const TensorEntry& entry = Get(name);
  const std::span<const std::byte> bytes = Bytes(name);
  switch (entry.dtype) {
    case DType::kF64:
      return ConvertAll<double>(bytes, [](double x) { return static_cast<float>(x); });
    case DType::kF32:
      return ConvertAll<float>(bytes, [](float x) { return x; });
    case DType::kF16:
      return ConvertAll<std::uint16_t>(bytes, DecodeFp16);
    case DType::kBF16:
      return ConvertAll<std::uint16_t>(bytes, DecodeBf16);
    case DType::kF8E4M3:
      return ConvertFp8(bytes, kFp8E4M3);
    case DType::kF8E5M2:
      return ConvertFp8(bytes, kFp8E5M2);
    default:
      throw DataError(path_ + ": byte " + std::to_string(entry.begin) + ": tensor '" + entry.name +
                      "' is " + std::string(ToString(entry.dtype)) +
                      "; expected F64, F32, F16, BF16, F8_E4M3 or F8_E5M2");
  }
}

}  // namespace ada
