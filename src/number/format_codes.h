// Formats of few bits that number_format.h has no name for, and the codes of all formats.
#pragma once
#include <cstdint>
#include <vector>

#include "number/number_format.h"

namespace ada {

inline constexpr NumberFormat kFp4E1M2{1, 2, 1, false, false};  // 0, 0.25 .. 1.75
// Whole numbers of both signs, -127 .. 127 and -7 .. 7, as formats of one exponent bit, whose
// values are all equally far apart; mxint8's elements are 64 times smaller.
inline constexpr NumberFormat kInt8{1, 6, -5, false, false}, kInt4{1, 2, -1, false, false};
inline constexpr NumberFormat kMxInt8{1, 6, 1, false, false};
// Whether its values are whole numbers, all of them up to the largest.
inline constexpr bool IsInteger(const NumberFormat& format) {
  return format.exponent_bits == 1 && !format.has_inf && !format.has_nan &&
         format.bias == 1 - format.mantissa_bits;
}

// The code of a value that is in a signed `format`: the sign on top, then exponent and mantissa.
// NaN has all ones below its sign, or the code of -0 in a format without one.
std::uint32_t CodeOf(const NumberFormat& format, float value);
// The value of each code of a signed format of at most 16 bits.
std::vector<float> ValuesOfCodes(const NumberFormat& format);

}  // namespace ada
