// The header of a .npy file (NumPy Enhancement Proposal 1, "A Simple File Format for NumPy
// Arrays"): magic string, version, header length, and a Python dictionary of element type, order
// and shape.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/tensor_files/safetensors.h"

namespace ada::data {

struct NpyHeader {
  DType dtype = DType::kU8;
  std::vector<std::int64_t> shape;
  std::size_t data_offset = 0;  // where the elements begin
};

// A header takes no more.
inline constexpr std::size_t kMostNpyHeader = 64 << 10;

// Parses the header at the beginning of `bytes`, which may be cut after kMostNpyHeader bytes.
// `place` begins every message. DataError: another magic string or version, damage, and arrays that
// are refused: of objects, records, complex numbers or text, of big-endian numbers, in Fortran
// order.
NpyHeader ParseNpyHeader(std::span<const std::byte> bytes, const std::string& place);

}  // namespace ada::data
