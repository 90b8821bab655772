// Elements of arrays of whole numbers, whatever their type.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "core/tensor_files/safetensors.h"

namespace ada::data {

// I8 to I64 and U8 to U64.
bool IsInteger(DType dtype);
// The number at `at`, which need not be aligned; nothing where it is not 0 .. limit - 1.
std::optional<std::int64_t> IntegerBelow(const std::byte* at, DType dtype, std::int64_t limit);
// Whether it is `number`.
bool IntegerIs(const std::byte* at, DType dtype, std::int64_t number);
// The number in decimal.
std::string IntegerText(const std::byte* at, DType dtype);

}  // namespace ada::data
