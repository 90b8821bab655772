// The names and widths of element types, one table.
#include "io/tensor_files/tensor_entry.h"

#include <array>

#include "io/shown_text.h"

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
