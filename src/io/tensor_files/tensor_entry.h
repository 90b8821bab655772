// What a safetensors file says of one tensor: its name, the type of its elements, its shape, and
// where its bytes lie.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

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

}  // namespace ada
