// Block-scaled number formats as plain values: elements with few bits that share scales (MX, NVFP4,
// FP8 in blocks of 128). The rules of quantization are in block_rules_inline.h.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "number/number_format.h"

namespace ada {

// How a block's scale is stored: a power of two in 8 bits, an fp8 number with or without a sign, an
// fp32 number, or HiFloat4's, which has 6 bits of exponent and 2 of mantissa.
enum class BlockScale : std::uint8_t { kE8M0, kFp8E4M3, kFp32, kUE5M3, kE6M2 };
// How the scale is computed from the largest magnitude of a block. e8m0 has the first four; the
// others have kTe (Transformer Engine's rule), fp8_e4m3 also those after it, and e6m2 the last.
enum class BlockRule : std::uint8_t {
  kFloor,
  kCeil,
  kEven,
  kRceil,
  kTe,
  kFourOverSix,
  kTorchao,
  kModelopt,
  kHiFloat4
};
// By which error kFourOverSix chooses between its two scales.
enum class BlockError : std::uint8_t { kMae, kMse };

// One block-scaled format, as in the YAML of `operands` and `convert`. It can hold any combination;
// RefuseBlockFormat tells which ones are valid.
struct BlockFormat {
  NumberFormat element = kFp8E4M3;  // one of BlockElements
  int block = 32;                   // values along the axis that share a scale
  bool square = false;              // true: tiles of block x block values share one
  BlockScale scale = BlockScale::kE8M0;
  BlockRule rule = BlockRule::kFloor;
  bool tensor_scale = false;  // fp8_e4m3: the tensor has an fp32 scale as well as its blocks
  bool row_scaled = false;    // then each row has its own: one for all blocks of a line
  bool power_of_two = false;  // fp32: scales are rounded to powers of two
  BlockError error = BlockError::kMae;  // kFourOverSix
  int top = 448;                        // kFourOverSix: the largest block scale is mapped to this
  friend bool operator==(const BlockFormat&, const BlockFormat&) = default;
};

inline constexpr int kMostBlock = 1024;  // the largest `block`
inline constexpr int kHiFloat4Block = 64;

// The format with default settings for its scale: block size and rule; for nvfp4 the tensor scale
// too.
BlockFormat DefaultBlockFormat(const NumberFormat& element, BlockScale scale);
// Why there is no such format, or "": for example a rule that its kind of scale does not have.
std::string RefuseBlockFormat(const BlockFormat& format);

// Bits of a value with its part of the block's scale.
double BitsPerValue(const BlockFormat& format);

// Whether bf16 can hold every value of the format, for inputs stored in 16 bits or for any.
bool FitsBf16(const BlockFormat& format, bool of_16_bits);

struct NamedBlockFormat {
  std::string_view name;
  BlockFormat format;
};
// mxfp8_e4m3 and so on, in the order in which `ada-train formats` lists them.
const std::vector<NamedBlockFormat>& NamedBlockFormats();
// The formats that elements may have: fp8, fp6 and fp4 as the OCP specifications define them, the
// other fp4, and whole numbers.
const std::vector<NamedFormat>& BlockElements();

// The words used in YAML.
std::string_view ToString(BlockScale scale);  // e8m0
std::string_view ToString(BlockRule rule);    // four_over_six
std::string_view ToString(BlockError error);  // mae

// The name used in YAML and CSV, or a YAML map of element, block, scale and of what differs from
// DefaultBlockFormat.
std::string FormatName(const BlockFormat& format);

// A format of either kind, as `convert` and `operands` take them.
using AnyFormat = std::variant<NumberFormat, BlockFormat>;
std::string FormatName(const AnyFormat& format);

}  // namespace ada
