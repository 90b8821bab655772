// The formats that have names, and what the others are called.
#include "core/number_format.h"

namespace ada {

const std::vector<NamedFormat>& NamedFormats() {
  static const std::vector<NamedFormat> formats = {
      {"fp32", kFp32},
      {"fp16", kFp16},
      {"bf16", kBf16},
      {"cb16", kCb16},
      {"fp8_e4m3", kFp8E4M3},
      {"fp8_e5m2", kFp8E5M2},
      {"fp8_e3m4", {3, 4, 3}},
      {"fp8_e4m3_ieee", {4, 3, 7}},
      {"fp8_e4m3_fnuz", {4, 3, 8, false, true, false}},
      {"fp8_e5m2_fnuz", {5, 2, 16, false, true, false}},
      {"fp8_e4m3_b11fnuz", {4, 3, 11, false, true, false}},
      {"fp6_e2m3", kFp6E2M3},
      {"fp6_e3m2", kFp6E3M2},
      {"fp4_e2m1", kFp4E2M1},
      {"e8m0", {8, 0, 127, false, true, true, false, false}}};
  return formats;
}

std::string FormatName(const NumberFormat& format) {
  for (const NamedFormat& named : NamedFormats()) {
    NumberFormat same = named.format;
    same.saturate = format.saturate;
    if (same == format) return std::string(named.name);
  }
  std::string text = "{exponent: " + std::to_string(format.exponent_bits) +
                     ", mantissa: " + std::to_string(format.mantissa_bits);
  const auto add = [&text](bool differs, const std::string& entry) {
    if (differs) text += ", " + entry;
  };
  add(format.bias != (1 << (format.exponent_bits - 1)) - 1, "bias: " + std::to_string(format.bias));
  add(!format.has_inf, "has_inf: false");
  add(!format.has_nan, "has_nan: false");
  add(!format.has_negative_zero, "negative_zero: false");
  add(format.saturate, "saturate: true");
  add(!format.is_signed, "signed: false");
  return text + "}";
}

}  // namespace ada
