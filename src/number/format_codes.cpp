// A code is sign, exponent and mantissa of the value on its format's grid.
#include "number/format_codes.h"

#include <algorithm>
#include <cmath>

#include "error.h"
#include "number/number_grid.h"

namespace ada {

std::uint32_t CodeOf(const NumberFormat& format, float value) {
  const std::uint32_t bits = BitsOf(value), magnitude = bits & 0x7fffffffu;
  const int width = format.exponent_bits + format.mantissa_bits;
  const std::uint32_t minus = 1u << width, sign = bits >> 31 << width;
  if (magnitude > kInfinityBits) return format.has_negative_zero ? sign | (minus - 1) : minus;
  const std::uint32_t top = (1u << format.exponent_bits) - 1;
  if (magnitude == kInfinityBits) return sign | top << format.mantissa_bits;
  if (magnitude == 0) return format.has_negative_zero ? sign : 0;
  const int lowest = LowestExponentOf(format);
  const int exponent = std::max(std::ilogb(OfBits(magnitude)), lowest);
  // The magnitude in units of its spacing, with the implicit bit of a normal value.
  const auto integer = static_cast<std::uint32_t>(
      std::ldexp(static_cast<double>(OfBits(magnitude)), format.mantissa_bits - exponent));
  const std::uint32_t one = 1u << format.mantissa_bits;
  if (integer < one) return sign | integer;
  return sign | static_cast<std::uint32_t>(exponent + format.bias) << format.mantissa_bits |
         (integer & (one - 1));
}

std::vector<float> ValuesOfCodes(const NumberFormat& format) {
  const int width = format.exponent_bits + format.mantissa_bits;
  ADA_CHECK(format.is_signed && width <= 15);
  const std::uint32_t half = 1u << width, one = 1u << format.mantissa_bits;
  const std::uint32_t largest = CodeOf(format, static_cast<float>(format.largest()));
  std::vector<float> values(std::size_t{2} * half);
  for (std::uint32_t code = 0; code < half; ++code) {
    const auto field = static_cast<int>(code >> format.mantissa_bits);
    const std::uint32_t integer = (code & (one - 1)) | (field == 0 ? 0 : one);
    float value = std::ldexp(static_cast<float>(integer),
                             (field == 0 ? 1 : field) - format.bias - format.mantissa_bits);
    if (code > largest)
      value = OfBits(format.has_inf && code == largest + 1 ? kInfinityBits : kQuietNanBits);
    values[code] = value, values[code + half] = -value;
  }
  if (!format.has_negative_zero) values[half] = OfBits(kQuietNanBits);
  return values;
}

}  // namespace ada
