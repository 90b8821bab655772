// The names and widths of element types, and where tensors lie in a safetensors file: no holes, no
// overlaps, sizes as shapes and dtypes say.
#include <algorithm>
#include <array>
#include <limits>
#include <tuple>

#include "error.h"
#include "io/shown_text.h"
#include "io/tensor_files/safetensors_header.h"

namespace ada {
namespace {

struct DTypeInfo {
  std::string_view name;
  int bits;
};
constexpr std::array<DTypeInfo, 22> kDTypes = {
    {{"F64", 64},    {"F32", 32},        {"F16", 16},        {"BF16", 16},   {"F8_E4M3", 8},
     {"F8_E5M2", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"F8_E8M0", 8}, {"F6_E2M3", 6},
     {"F6_E3M2", 6}, {"F4", 4},          {"I64", 64},        {"I32", 32},    {"I16", 16},
     {"I8", 8},      {"U64", 64},        {"U32", 32},        {"U16", 16},    {"U8", 8},
     {"BOOL", 8},    {"another type", 0}}};

}  // namespace

std::string_view ToString(DType dtype) { return kDTypes[static_cast<std::size_t>(dtype)].name; }
int BitsOf(DType dtype) { return kDTypes[static_cast<std::size_t>(dtype)].bits; }
std::size_t BytesOf(DType dtype) { return static_cast<std::size_t>(BitsOf(dtype) + 7) / 8; }

bool IsFloat(DType dtype) { return dtype <= DType::kF4; }

std::string TensorEntry::dtype_name() const {
  return dtype == DType::kOther ? other_dtype : std::string(ToString(dtype));
}
std::string TensorEntry::dtype_text() const { return Visible(dtype_name()); }

std::int64_t TensorEntry::numel() const {
  std::int64_t product = 1;
  for (const std::int64_t size : shape) product *= size;
  return product;
}

}  // namespace ada

namespace ada::safetensors {
namespace {

// Bits of the tensor; false where the product leaves 63 bits. A type of unknown size counts as one
// of 8 bits, so that its shape is checked as well.
bool BitCount(const TensorEntry& entry, std::uint64_t* bits) {
  constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  const int each = BitsOf(entry.dtype);
  *bits = static_cast<std::uint64_t>(each == 0 ? 8 : each);
  bool empty = false;
  for (const std::int64_t size : entry.shape) {
    const auto factor = static_cast<std::uint64_t>(size);
    empty = empty || factor == 0;
    if (factor != 0 && *bits > kMax / factor) return false;
    if (factor != 0) *bits *= factor;
  }
  if (empty) *bits = 0;
  return true;
}

}  // namespace

void PlaceEntries(const std::string& path, std::uint64_t data_start, std::uint64_t data_size,
                  std::vector<TensorEntry>* entries) {
  std::stable_sort(entries->begin(), entries->end(),
                   [](const TensorEntry& a, const TensorEntry& b) {
                     return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
                   });
  // Entries in the order of their bytes must each begin where the one before ends: that excludes
  // holes and overlaps in one pass.
  std::uint64_t expected = 0;
  const auto fail = [&](const TensorEntry& entry, const std::string& what) {
    throw DataError(path + ": byte " + std::to_string(data_start + expected) + ": tensor " +
                    Shown(entry.name) + " " + what);
  };
  const auto range = [](const TensorEntry& entry) {
    return "[" + std::to_string(entry.begin) + ", " + std::to_string(entry.end) + "]";
  };
  for (TensorEntry& entry : *entries) {
    if (entry.begin > entry.end)
      fail(entry, "has data_offsets " + range(entry) + " that run backwards");
    if (entry.begin < expected)
      fail(entry, "overlaps the tensor before it, data_offsets " + range(entry));
    if (entry.begin > expected)
      fail(entry, "leaves a hole before it, data_offsets " + range(entry));
    std::uint64_t bits = 0;
    if (!BitCount(entry, &bits)) fail(entry, "has a shape whose size overflows");
    if (bits % 8 != 0)
      fail(entry, "needs " + std::to_string(bits) +
                      " bits for its shape and dtype, which are no "
                      "whole bytes");
    if (entry.dtype != DType::kOther && entry.end - entry.begin != bits / 8) {
      fail(entry, "needs " + std::to_string(bits / 8) + " bytes for its shape and dtype, but has " +
                      "data_offsets " + range(entry));
    }
    if (entry.end > data_size) {
      fail(entry, "ends at byte " + std::to_string(data_start + entry.end) + ", but the file has " +
                      std::to_string(data_start + data_size) + " (is it truncated?)");
    }
    expected = entry.end;
    entry.begin += data_start;
    entry.end += data_start;
  }
  if (expected != data_size) {
    throw DataError(path + ": byte " + std::to_string(data_start + expected) + ": " +
                    std::to_string(data_size - expected) + " bytes after the last tensor");
  }
}

}  // namespace ada::safetensors
