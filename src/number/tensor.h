// Shapes and tensor views. A view owns nothing: its backend owns the bytes.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "number/number_format.h"

namespace ada {

// [n, h, w, c] of an activation in NHWC order; a flat activation is [n, 1, 1, features].
struct Shape {
  std::int64_t n = 0, h = 1, w = 1, c = 0;
  std::int64_t numel() const { return n * h * w * c; }
  std::int64_t per_image() const { return h * w * c; }
  friend bool operator==(const Shape&, const Shape&) = default;
};
// "32x32x16" (height, width, channels) or "10" for a flat activation; n is left out.
inline std::string ToString(const Shape& shape) {
  std::string channels = std::to_string(shape.c);
  if (shape.h == 1 && shape.w == 1) return channels;
  return std::to_string(shape.h) + "x" + std::to_string(shape.w) + "x" + channels;
}

// The data type in memory, which can hold every value of the tensor's format exactly.
enum class Storage : std::uint8_t { kF32, kF16, kBF16 };
constexpr std::size_t BytesOf(Storage storage) { return storage == Storage::kF32 ? 4 : 2; }
// Whether every finite value of `inner` is one of `outer`.
inline bool HoldsAll(const NumberFormat& outer, const NumberFormat& inner) {
  return inner.mantissa_bits <= outer.mantissa_bits &&
         inner.smallest_subnormal() >= outer.smallest_subnormal() &&
         inner.largest() <= outer.largest();
}
// Whether values of `format` are those of `of`, whatever becomes of what is beyond them.
inline bool HasValuesOf(const NumberFormat& of, NumberFormat format) {
  format.saturate = of.saturate;
  return format == of;
}
// Whether values are kept as bf16 numbers; those of a tensor with a per-tensor scale are not.
inline bool IsKeptInBf16(const NumberFormat& format, Storage storage) {
  return storage == Storage::kBF16 && HasValuesOf(kBf16, format);
}
// The format whose codes a 16-bit storage type contains.
constexpr const NumberFormat& FormatOf(Storage storage) {
  return storage == Storage::kF32 ? kFp32 : storage == Storage::kF16 ? kFp16 : kBf16;
}
// The 16-bit type that holds every finite value of `format`, or fp32 if neither does, and for
// formats that are rounded by a table.
inline Storage StorageFor(const NumberFormat& format) {
  if (format.table != 0) return Storage::kF32;
  if (HoldsAll(kFp16, format)) return Storage::kF16;
  if (HoldsAll(kBf16, format)) return Storage::kBF16;
  return Storage::kF32;
}

// A view of memory that the backend owns; a default-constructed one has no memory and converts to
// false. Copies refer to the same values.
struct Tensor {
  Shape shape;
  NumberFormat format = kFp32;
  Storage storage = Storage::kF32;
  std::byte* data = nullptr;

  explicit operator bool() const { return data != nullptr; }
  std::size_t bytes() const { return static_cast<std::size_t>(shape.numel()) * BytesOf(storage); }
  float* f32() const { return reinterpret_cast<float*>(data); }
};

}  // namespace ada
