// Names of shapes, and which storage holds a format exactly.
#include "core/tensor.h"

namespace ada {
namespace {

// Whether every finite value of `inner` is one of `outer`.
bool Contains(const NumberFormat& outer, const NumberFormat& inner) {
  return inner.mantissa_bits <= outer.mantissa_bits &&
         inner.smallest_subnormal() >= outer.smallest_subnormal() &&
         inner.largest() <= outer.largest();
}

}  // namespace

std::string ToString(const Shape& shape) {
  const std::string channels = std::to_string(shape.c);
  if (shape.h == 1 && shape.w == 1) return channels;
  return std::to_string(shape.h) + "x" + std::to_string(shape.w) + "x" + channels;
}

Storage StorageFor(const NumberFormat& format) {
  if (Contains(kFp16, format)) return Storage::kF16;
  if (Contains(kBf16, format)) return Storage::kBF16;
  return Storage::kF32;
}

}  // namespace ada
