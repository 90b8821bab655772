// Opening, reading and converting; the header's own checks are in safetensors_header.cpp.
#include "io/tensor_files/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "io/data_files.h"
#include "io/system_call.h"
#include "io/tensor_files/safetensors_header.h"
#include "number/number_format.h"

namespace ada {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

constexpr std::uint64_t kRecognized = 256;  // bytes that tell a file's kind

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) CloseFile(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  int get() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

// The header's length, checked against the file's.
std::uint64_t CheckedLength(const std::string& path, std::uint64_t length, std::uint64_t size) {
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

// Files of PyTorch, NumPy and so on. What may be a header is none of them.
void RefuseForeign(const std::string& path, const std::string& begin, std::uint64_t length,
                   std::uint64_t size) {
  const bool header = length <= size - safetensors::kLengthBytes &&
                      begin.substr(safetensors::kLengthBytes).starts_with('{');
  const std::string hint = header ? "" : ForeignTensorsHint(path, begin);
  if (!hint.empty()) throw DataError(path + ": " + hint);
}

// As AMD's MI300 has them: no inf and no negative zero, whose code is NaN.
constexpr NumberFormat kFp8E4M3Fnuz{4, 3, 8, false, true, false};
constexpr NumberFormat kFp8E5M2Fnuz{5, 2, 16, false, true, false};

// The value of a code of few bits: sign, exponent, mantissa (OCP 8-bit floating point specification
// and Microscaling Formats).
float Decode(const NumberFormat& format, unsigned code) {
  const unsigned mantissa = code & ((1u << format.mantissa_bits) - 1);
  const unsigned top = (1u << format.exponent_bits) - 1;
  const unsigned exponent = (code >> format.mantissa_bits) & top;
  const int sign = format.exponent_bits + format.mantissa_bits;  // the number of its bit
  const unsigned sign_bit = 1u << sign;
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  float magnitude = 0;
  if (format.has_inf && exponent == top) {
    magnitude = mantissa == 0 ? INFINITY : kNan;
  } else if (!format.has_inf && format.has_nan &&
             (format.has_negative_zero ? (code | sign_bit) == (sign_bit | (sign_bit - 1))
                                       : code == sign_bit)) {
    magnitude = kNan;
  } else {
    const unsigned digits = exponent == 0 ? mantissa : mantissa + (1u << format.mantissa_bits);
    const int power = exponent == 0 ? 1 : static_cast<int>(exponent);
    magnitude = std::ldexp(static_cast<float>(digits), power - format.bias - format.mantissa_bits);
  }
  return (code & sign_bit) != 0 ? -magnitude : magnitude;
}
float DecodeE8M0(unsigned code) {
  return code == 255 ? std::numeric_limits<float>::quiet_NaN()
                     : std::ldexp(1.0f, static_cast<int>(code) - 127);
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

// Codes of at most 8 bits, packed from the lowest bit of each byte on.
template <class Decoder>
std::vector<float> ConvertCodes(std::span<const std::byte> bytes, int bits, Decoder decode) {
  std::array<float, 256> values;
  for (unsigned code = 0; code < 1u << bits; ++code) values[code] = decode(code);
  std::vector<float> all(bytes.size() * 8 / static_cast<std::size_t>(bits));
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::size_t first = i * static_cast<std::size_t>(bits), byte = first / 8;
    unsigned both = std::to_integer<unsigned>(bytes[byte]);
    if (byte + 1 < bytes.size()) both |= std::to_integer<unsigned>(bytes[byte + 1]) << 8;
    all[i] = values[both >> first % 8 & ((1u << bits) - 1)];
  }
  return all;
}
std::vector<float> ConvertCodes(std::span<const std::byte> bytes, const NumberFormat& format) {
  return ConvertCodes(bytes, 1 + format.exponent_bits + format.mantissa_bits,
                      [&](unsigned code) { return Decode(format, code); });
}

}  // namespace

SafetensorsFile SafetensorsFile::Open(const std::string& path) {
  const auto fail = [&path](const char* doing) {
    const int error = errno;
    ThrowUnread<DataError>(path + ": " + doing + ": " + std::strerror(error), error);
  };
  FileDescriptor fd(OpenFile(path, O_RDONLY | O_NONBLOCK));
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
  file.fd_ = fd.Release();
  std::string begin(std::min<std::uint64_t>(size, kRecognized), '\0');
  file.Read(0, begin.data(), begin.size());
  std::uint64_t length = 0;
  std::memcpy(&length, begin.data(), sizeof length);
  RefuseForeign(path, begin, length, size);
  std::string json(CheckedLength(path, length, size), '\0');
  file.Read(safetensors::kLengthBytes, json.data(), json.size());
  safetensors::Header header = safetensors::ParseHeader(path, json, size);
  file.entries_ = std::move(header.entries);
  file.metadata_ = std::move(header.metadata);
  for (std::size_t i = 0; i < file.entries_.size(); ++i) file.index_[file.entries_[i].name] = i;
  return file;
}

SafetensorsFile::SafetensorsFile(SafetensorsFile&& other) noexcept { *this = std::move(other); }

SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(entries_, other.entries_);
  std::swap(index_, other.index_);
  std::swap(metadata_, other.metadata_);
  return *this;
}

SafetensorsFile::~SafetensorsFile() {
  if (fd_ >= 0) CloseFile(fd_);
}

std::string SafetensorsFile::MetadataOf(const std::string& key) const {
  const auto found = metadata_.find(key);
  return found == metadata_.end() ? "" : found->second;
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

void SafetensorsFile::Read(std::uint64_t offset, void* to, std::size_t bytes) const {
  const std::size_t got = ReadAt(fd_, offset, to, bytes);
  if (got == bytes) return;
  const int error = errno;
  if (error != 0)
    ThrowUnread<DataError>(path_ + ": cannot be read: " + std::strerror(error), error);
  throw DataError(path_ + ": byte " + std::to_string(offset + got) +
                  ": the file has become shorter while it was read");
}

std::vector<std::byte> SafetensorsFile::Bytes(std::string_view name) const {
  const TensorEntry& entry = Get(name);
  std::vector<std::byte> bytes(entry.end - entry.begin);
  Read(entry.begin, bytes.data(), bytes.size());
  return bytes;
}

std::vector<float> SafetensorsFile::ReadF32(std::string_view name) const {
  const TensorEntry& entry = Get(name);
  if (entry.dtype == DType::kF32) {
    std::vector<float> values((entry.end - entry.begin) / sizeof(float));
    Read(entry.begin, values.data(), values.size() * sizeof(float));
    return values;
  }
  const std::vector<std::byte> bytes =
      IsFloat(entry.dtype) ? Bytes(name) : std::vector<std::byte>();
  switch (entry.dtype) {
    case DType::kF64:
      return ConvertAll<double>(bytes, [](double x) { return static_cast<float>(x); });
    case DType::kF16:
      return ConvertAll<std::uint16_t>(bytes, DecodeFp16);
    case DType::kBF16:
      return ConvertAll<std::uint16_t>(bytes, DecodeBf16);
    case DType::kF8E4M3:
      return ConvertCodes(bytes, kFp8E4M3);
    case DType::kF8E5M2:
      return ConvertCodes(bytes, kFp8E5M2);
    case DType::kF8E4M3Fnuz:
      return ConvertCodes(bytes, kFp8E4M3Fnuz);
    case DType::kF8E5M2Fnuz:
      return ConvertCodes(bytes, kFp8E5M2Fnuz);
    case DType::kF8E8M0:
      return ConvertCodes(bytes, 8, DecodeE8M0);
    case DType::kF6E2M3:
      return ConvertCodes(bytes, kFp6E2M3);
    case DType::kF6E3M2:
      return ConvertCodes(bytes, kFp6E3M2);
    case DType::kF4:
      return ConvertCodes(bytes, kFp4E2M1);
    default:
      throw DataError(path_ + ": byte " + std::to_string(entry.begin) + ": tensor '" + entry.name +
                      "' is " + entry.dtype_text() +
                      "; expected F64, F32, F16, BF16, F8_E4M3, F8_E5M2, F8_E4M3FNUZ, "
                      "F8_E5M2FNUZ, F8_E8M0, F6_E2M3, F6_E3M2 or F4");
  }
}

std::vector<double> SafetensorsFile::ReadF64(std::string_view name) const {
  const TensorEntry& entry = Get(name);
  if (entry.dtype != DType::kF64)
    throw DataError(path_ + ": byte " + std::to_string(entry.begin) + ": tensor '" + entry.name +
                    "' is " + entry.dtype_text() + "; expected F64");
  std::vector<double> values((entry.end - entry.begin) / sizeof(double));
  Read(entry.begin, values.data(), values.size() * sizeof(double));
  return values;
}

}  // namespace ada
