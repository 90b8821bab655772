#include "data/tensors/integers.h"

#include <cstring>
#include <utility>

namespace ada::data {
namespace {

// Calls `use` with the number in its own type.
template <class Use>
auto WithInteger(const std::byte* at, DType dtype, const Use& use) {
  const auto read = [&](auto value) {
    std::memcpy(&value, at, sizeof value);
    return use(value);
  };
  switch (dtype) {
    case DType::kU8:
      return read(std::uint8_t{});
    case DType::kI8:
      return read(std::int8_t{});
    case DType::kU16:
      return read(std::uint16_t{});
    case DType::kI16:
      return read(std::int16_t{});
    case DType::kU32:
      return read(std::uint32_t{});
    case DType::kI32:
      return read(std::int32_t{});
    case DType::kU64:
      return read(std::uint64_t{});
    default:
      return read(std::int64_t{});
  }
}

}  // namespace

bool IsInteger(DType dtype) {
  return !IsFloat(dtype) && dtype != DType::kBool && dtype != DType::kOther;
}

std::optional<std::int64_t> IntegerBelow(const std::byte* at, DType dtype, std::int64_t limit) {
  return WithInteger(at, dtype, [limit](auto value) -> std::optional<std::int64_t> {
    if (std::cmp_less(value, 0) || std::cmp_greater_equal(value, limit)) return std::nullopt;
    return static_cast<std::int64_t>(value);
  });
}

bool IntegerIs(const std::byte* at, DType dtype, std::int64_t number) {
  return WithInteger(at, dtype, [number](auto value) { return std::cmp_equal(value, number); });
}

std::string IntegerText(const std::byte* at, DType dtype) {
  return WithInteger(at, dtype, [](auto value) { return std::to_string(value); });
}

}  // namespace ada::data
