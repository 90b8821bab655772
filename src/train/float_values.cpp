// FP8 codes by table; wider types are the file's own business.
#include "train/float_values.h"

#include <array>
#include <cmath>
#include <limits>
#include <span>

#include "core/number_format.h"

namespace ada::train {
namespace {

// The value of an 8-bit code: sign, exponent, mantissa (OCP 8-bit floating point specification).
float Decode(const NumberFormat& format, unsigned code) {
  const unsigned mantissa = code & ((1u << format.mantissa_bits) - 1);
  const unsigned top = (1u << format.exponent_bits) - 1;
  const unsigned exponent = (code >> format.mantissa_bits) & top;
  double magnitude = 0;
  if (format.has_inf && exponent == top) {
    magnitude = mantissa == 0 ? INFINITY : std::numeric_limits<double>::quiet_NaN();
  } else if (!format.has_inf && (code & 0x7f) == 0x7f) {
    magnitude = std::numeric_limits<double>::quiet_NaN();
  } else {
    const unsigned digits = exponent == 0 ? mantissa : mantissa + (1u << format.mantissa_bits);
    const int power = exponent == 0 ? 1 : static_cast<int>(exponent);
    magnitude = std::ldexp(static_cast<double>(digits), power - format.bias - format.mantissa_bits);
  }
  return static_cast<float>(code & 0x80 ? -magnitude : magnitude);
}

std::vector<float> ReadFp8(std::span<const std::byte> bytes, const NumberFormat& format) {
  std::array<float, 256> values;
  for (unsigned code = 0; code < 256; ++code) values[code] = Decode(format, code);
  std::vector<float> out(bytes.size());
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = values[static_cast<std::size_t>(bytes[i])];
  return out;
}

}  // namespace

bool IsFloat(DType dtype) { return dtype <= DType::kF8E5M2; }

std::vector<float> ReadFloats(const SafetensorsFile& file, const TensorEntry& entry) {
  if (entry.dtype == DType::kF8E4M3) return ReadFp8(file.Bytes(entry.name), kFp8E4M3);
  if (entry.dtype == DType::kF8E5M2) return ReadFp8(file.Bytes(entry.name), kFp8E5M2);
  return file.ReadF32(entry.name);
}

}  // namespace ada::train
