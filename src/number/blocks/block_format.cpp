// Names of block-scaled formats, and what belongs together in one.
#include "number/blocks/block_format.h"

#include <algorithm>
#include <array>

#include "number/number_format.h"

namespace ada {
namespace {

BlockFormat Mx(const NumberFormat& element) {
  return DefaultBlockFormat(element, BlockScale::kE8M0);
}

// Relies on the order of BlockRule: rules of e8m0 first, then kTe, then those that only fp8_e4m3
// has, then kHiFloat4.
bool Knows(BlockScale scale, BlockRule rule) {
  switch (scale) {
    case BlockScale::kE8M0:
      return rule < BlockRule::kTe;
    case BlockScale::kFp8E4M3:
      return rule >= BlockRule::kTe && rule < BlockRule::kHiFloat4;
    case BlockScale::kE6M2:
      return rule == BlockRule::kHiFloat4;
    case BlockScale::kFp32:
    case BlockScale::kUE5M3:
      return rule == BlockRule::kTe;
  }
  return false;
}

// The rules of a scale in words, as "floor, ceil, even, rceil".
std::string RulesOf(BlockScale scale) {
  std::string rules;
  for (int i = 0; i <= static_cast<int>(BlockRule::kHiFloat4); ++i) {
    const auto rule = static_cast<BlockRule>(i);
    if (!Knows(scale, rule)) continue;
    if (!rules.empty()) rules += ", ";
    rules += ToString(rule);
  }
  return rules;
}

}  // namespace

BlockFormat DefaultBlockFormat(const NumberFormat& element, BlockScale scale) {
  BlockFormat format;
  format.element = element;
  format.scale = scale;
  switch (scale) {
    case BlockScale::kE8M0:
      break;
    case BlockScale::kFp8E4M3:
      format.block = 16, format.rule = BlockRule::kTe, format.tensor_scale = true;
      break;
    case BlockScale::kFp32:
      format.block = 128, format.rule = BlockRule::kTe;
      break;
    case BlockScale::kUE5M3:
      format.block = 16, format.rule = BlockRule::kTe;
      break;
    case BlockScale::kE6M2:
      format.block = kHiFloat4Block, format.rule = BlockRule::kHiFloat4;
      break;
  }
  return format;
}

std::string RefuseBlockFormat(const BlockFormat& format) {
  const bool element =
      std::any_of(BlockElements().begin(), BlockElements().end(),
                  [&](const NamedFormat& known) { return known.format == format.element; });
  if (!element)
    return "elements are fp8_e4m3, fp8_e5m2, fp6_e2m3, fp6_e3m2, fp4_e2m1, fp4_e1m2, int8, int4 or "
           "mxint8";
  if (format.block < 1 || format.block > kMostBlock)
    return "block is " + std::to_string(format.block) + "; 1 to " + std::to_string(kMostBlock) +
           " are possible";
  if (!Knows(format.scale, format.rule))
    return "scale " + std::string(ToString(format.scale)) + " has no rule " +
           std::string(ToString(format.rule)) + "; it has " + RulesOf(format.scale);
  const bool hifloat4 = format.rule == BlockRule::kHiFloat4;
  if (hifloat4 && (format.element != kFp4E1M2 || format.block != kHiFloat4Block || format.square))
    return "scale e6m2 is for elements of fp4_e1m2 in blocks of 64 values";
  if ((format.tensor_scale || format.row_scaled) && format.scale != BlockScale::kFp8E4M3)
    return "only scale fp8_e4m3 has a tensor_scale";
  if (format.power_of_two && format.scale != BlockScale::kFp32)
    return "power_of_two is for scale fp32";
  if (format.row_scaled && format.square)
    return "tensor_scale: row is for blocks along an axis; a tile lies in several rows";
  if (format.row_scaled &&
      (format.rule == BlockRule::kTorchao || format.rule == BlockRule::kModelopt))
    return "tensor_scale: row is for rules te and four_over_six";
  if (format.rule == BlockRule::kModelopt && !format.tensor_scale)
    return "rule modelopt needs tensor_scale: true";
  if (format.rule != BlockRule::kFourOverSix) return {};
  if (!format.tensor_scale) return "rule four_over_six needs tensor_scale: true";
  if (format.element != kFp4E2M1) return "rule four_over_six is for elements of fp4_e2m1";
  return format.top == 448 || format.top == 256 ? "" : "top is 448 or 256";
}

// HiFloat4 has a bit for each eight and each four values beside the scale.
double BitsPerValue(const BlockFormat& format) {
  double shared = format.scale == BlockScale::kFp32 ? 32 : 8;
  if (format.rule == BlockRule::kHiFloat4) shared += kHiFloat4Block / 8 + kHiFloat4Block / 4;
  const double values = format.square ? double{1} * format.block * format.block : format.block;
  return 1 + format.element.exponent_bits + format.element.mantissa_bits + shared / values;
}

// Elements have at most 7 significant bits. Times a power of two they keep them: values end where
// fp32 does, as bf16's do, and on the side of small ones a value that has 16 bits is a multiple of
// 2^-133, bf16's smallest, and stays one where it is rounded. Others may be times 2^-127 as small
// as an element is, which the elements of 6 and 4 bits leave room for. A scale of fp8_e4m3 by
// itself has 4 bits more, 8 in all with an element of 4, and a small range. By ue5m3 values are
// divided in fp32. HiFloat4's elements and its scale have 3 bits each. Any other scale has all bits
// of fp32.
bool FitsBf16(const BlockFormat& format, bool of_16_bits) {
  if (format.scale == BlockScale::kE8M0 || format.power_of_two)
    return of_16_bits || format.element.smallest_subnormal() >= 0x1p-6;
  if (format.scale == BlockScale::kE6M2) return true;
  return format.scale == BlockScale::kFp8E4M3 && !format.tensor_scale &&
         format.element.mantissa_bits <= 3;
}

const std::vector<NamedBlockFormat>& NamedBlockFormats() {
  static const std::vector<NamedBlockFormat> formats = {
      {"mxfp8_e4m3", Mx(kFp8E4M3)},
      {"mxfp8_e5m2", Mx(kFp8E5M2)},
      {"mxfp6_e2m3", Mx(kFp6E2M3)},
      {"mxfp6_e3m2", Mx(kFp6E3M2)},
      {"mxfp4", Mx(kFp4E2M1)},
      {"mxint8", Mx(kMxInt8)},
      {"nvfp4", DefaultBlockFormat(kFp4E2M1, BlockScale::kFp8E4M3)},
      {"fp8_block128", DefaultBlockFormat(kFp8E4M3, BlockScale::kFp32)},
      {"hifloat4", DefaultBlockFormat(kFp4E1M2, BlockScale::kE6M2)}};
  return formats;
}

const std::vector<NamedFormat>& BlockElements() {
  static const std::vector<NamedFormat> elements = {
      {"fp8_e4m3", kFp8E4M3}, {"fp8_e5m2", kFp8E5M2}, {"fp6_e2m3", kFp6E2M3},
      {"fp6_e3m2", kFp6E3M2}, {"fp4_e2m1", kFp4E2M1}, {"fp4_e1m2", kFp4E1M2},
      {"int8", kInt8},        {"int4", kInt4},        {"mxint8", kMxInt8}};
  return elements;
}

std::string_view ToString(BlockScale scale) {
  constexpr std::array<std::string_view, 5> kWords = {"e8m0", "fp8_e4m3", "fp32", "ue5m3", "e6m2"};
  return kWords[static_cast<std::size_t>(scale)];
}

std::string_view ToString(BlockRule rule) {
  constexpr std::array<std::string_view, 9> kWords = {
      "floor", "ceil", "even", "rceil", "te", "four_over_six", "torchao", "modelopt", "hifloat4"};
  return kWords[static_cast<std::size_t>(rule)];
}

std::string_view ToString(BlockError error) { return error == BlockError::kMae ? "mae" : "mse"; }

std::string FormatName(const BlockFormat& format) {
  for (const NamedBlockFormat& named : NamedBlockFormats()) {
    if (named.format == format) return std::string(named.name);
  }
  const BlockFormat usual = DefaultBlockFormat(format.element, format.scale);
  const std::string n = std::to_string(format.block);
  std::string element = FormatName(format.element);
  for (const NamedFormat& known : BlockElements())
    if (known.format == format.element) element = known.name;
  std::string text = "{element: " + element +
                     ", block: " + (format.square ? "[" + n + ", " + n + "]" : n) +
                     ", scale: " + std::string(ToString(format.scale));
  const auto add = [&text](bool differs, const char* key, std::string_view value) {
    if (differs) text += std::string(", ") + key + ": " + std::string(value);
  };
  add(format.rule != usual.rule, "rule", ToString(format.rule));
  add(format.tensor_scale != usual.tensor_scale || format.row_scaled, "tensor_scale",
      format.row_scaled     ? "row"
      : format.tensor_scale ? "true"
                            : "false");
  add(format.power_of_two, "power_of_two", "true");
  add(format.error != usual.error, "error", ToString(format.error));
  add(format.top != usual.top, "top", std::to_string(format.top));
  return text + "}";
}

std::string FormatName(const AnyFormat& format) {
  return std::visit([](const auto& known) { return FormatName(known); }, format);
}

}  // namespace ada
