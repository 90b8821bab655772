// The rules of block-scaled formats, block by block and value by value: one definition for the host
// and for CUDA devices. Every operation is in fp32, rounded once, in the order of the programs
// after which the rules are named:
//   floor  OCP Microscaling Formats 1.0, section 6.3; ceil, even, rceil: torchao at 36027d8,
//          torchao/prototype/mx_formats (to_mx)
//   te     Transformer Engine at d0067d0: NVFP4QuantizerRef, BlockwiseQuantizerReference; scale
//          fp8_e4m3 without a tensor scale: torchao 0.18.0, nvfp4_quantize
//   torchao   the latter with a tensor scale; modelopt: nvidia-modelopt 0.47.0, NVFP4QTensor
//   hifloat4  github.com/global-computing-consortium/HiFloat4 at 6d937b6, HiF4_NVFP4_v14f16.To_HiFX
//             with N = 4, which computes in double and rounds to bf16 in between
#pragma once
#include <cstdint>

#include "number/blocks/block_format.h"
#include "number/host_device.h"
#include "number/number_grid.h"

namespace ada {

inline constexpr std::uint32_t kLargestFp32Bits = 0x7f7fffffu;
inline constexpr int kNanE8M0 = 255;  // the code of NaN

// Constants of a block format.
struct BlockGrid {
  NumberGrid element;  // saturates
  NumberGrid scale;    // e4m3, ue5m3 or e6m2, which saturate
  BlockScale kind = BlockScale::kE8M0;
  BlockRule rule = BlockRule::kFloor;
  BlockError error = BlockError::kMae;
  bool tensor_scale = false, power_of_two = false;
  bool plain_zeros = false;     // elements for zeros and NaN are +0
  bool nan_is_zero = false;     // only those for NaN are
  bool has_nan = false;         // elements can be NaN
  bool divides = false;         // elements are rounded from x / decode, not x * encode
  int top_exponent = 0;         // of the largest element
  float top = 0;                // the largest element, of HiFloat4 doubled twice
  float top_reciprocal = 0;     // fp32(1 / top)
  float tensor_top = 0;         // the tensor's largest magnitude is mapped to this: 2688
  float tensor_reciprocal = 0;  // fp32(1 / tensor_top)
  float largest_input = 0;      // of the input's type: the largest fp32 or bf16 scale
};

// The format of a stored scale that is no power of two and no fp32; positive numbers alone.
ADA_HOST_DEVICE static constexpr NumberFormat ScaleFormatOf(BlockScale scale) {
  if (scale == BlockScale::kUE5M3) return {5, 3, 15, false, true, true, true};
  if (scale == BlockScale::kE6M2) return {6, 2, 48, false, true, true, true, false};
  return {4, 3, 7, false, true, true, true};
}

// The grid of a format that RefuseBlockFormat accepts. `bf16_input`: values are given as bf16,
// whose largest number then limits an fp32 scale.
ADA_HOST_DEVICE static constexpr BlockGrid BlockGridOf(const BlockFormat& format,
                                                       bool bf16_input = false) {
  BlockGrid grid;
  NumberFormat element = format.element;
  element.saturate = true;
  grid.element = GridOf(element);
  grid.scale = GridOf(ScaleFormatOf(format.scale));
  grid.kind = format.scale, grid.rule = format.rule, grid.error = format.error;
  grid.tensor_scale = format.tensor_scale, grid.power_of_two = format.power_of_two;
  grid.plain_zeros = format.tensor_scale && format.rule != BlockRule::kTorchao;
  grid.nan_is_zero =
      (format.tensor_scale && !grid.plain_zeros) || format.scale == BlockScale::kUE5M3;
  grid.has_nan = format.element.has_nan;
  grid.divides = format.rule == BlockRule::kModelopt || format.scale == BlockScale::kUE5M3;
  grid.top = OfBits(grid.element.largest);
  if (format.rule == BlockRule::kHiFloat4) grid.top *= 4;  // an element may be doubled twice
  grid.top_exponent = static_cast<int>(grid.element.largest >> 23) - 127;
  grid.top_reciprocal = 1.0f / grid.top;
  grid.tensor_top =
      grid.top * static_cast<float>(format.rule == BlockRule::kFourOverSix ? format.top : 448);
  grid.tensor_reciprocal = 1.0f / grid.tensor_top;
  grid.largest_input = OfBits(bf16_input ? 0x7f7f0000u : kLargestFp32Bits);
  return grid;
}

// The factors of a tensor's scale. Without one all are 1.
struct TensorFactor {
  float amax = 0;        // the tensor's largest magnitude; NaN if it contains a NaN
  float encode = 1;      // maps amax to tensor_top
  float decode = 1;      // 1 / encode
  bool bounded = false;  // encode is at its limit: amax is tiny, or not finite
};
ADA_HOST_DEVICE static inline TensorFactor TensorFactorOf(const BlockGrid& grid, float amax) {
  TensorFactor factor;
  factor.amax = amax;
  if (!grid.tensor_scale) return factor;
  if (grid.rule == BlockRule::kTorchao || grid.rule == BlockRule::kModelopt) {
    factor.decode = amax / grid.tensor_top;
    factor.encode = 1.0f / factor.decode;
    factor.bounded = !(factor.encode > 0 && factor.encode <= OfBits(kLargestFp32Bits));
    return factor;
  }
  const float exact = grid.tensor_top / amax, largest = OfBits(kLargestFp32Bits);
  factor.encode = exact > largest ? largest : exact;
  if (factor.encode == 0) factor.encode = 1;
  factor.decode = 1.0f / factor.encode;
  factor.bounded = !(exact > 0 && exact <= largest);
  return factor;
}

// The scale of one block. An element is RoundElement(grid, Scaled(grid, factor, x)), and its
// decoded value ValueOf(grid, factor, element).
struct BlockFactor {
  float stored = 1;  // the scale as it is stored, in the format of its kind
  float encode = 1, decode = 1;
  bool at_floor = false, at_ceiling = false;  // `stored` is the least, the most that the rule has
};

// --- e8m0 ----------------------------------------------------------------------------------------

// 2^exponent; -149 <= exponent <= 127.
ADA_HOST_DEVICE static constexpr float PowerOfTwo(int exponent) {
  return OfBits(BitsOfScaled(1, exponent));
}

// 0 to 254: 2^(code - 127); 255: NaN. `amax`: of the block, NaN if it contains one.
ADA_HOST_DEVICE static inline int E8M0CodeOf(const BlockGrid& grid, float amax) {
  std::uint32_t bits = BitsOf(amax);
  if (grid.rule == BlockRule::kRceil) {
    bits = BitsOf(amax * grid.top_reciprocal);
    if (bits >= kInfinityBits) return kNanE8M0;
    const std::uint32_t field = bits >> 23, mantissa = bits & 0x7fffffu;
    const bool up = field == 0 ? mantissa > 0x400000u : mantissa != 0;
    return static_cast<int>(field) + (up ? 1 : 0);
  }
  if (grid.rule == BlockRule::kEven && bits <= kInfinityBits)
    bits = (bits + (1u << (22 - grid.element.mantissa_bits))) & kInfinityBits;
  if (bits >= kInfinityBits) return kNanE8M0;
  int code = static_cast<int>(bits >> 23) - grid.top_exponent;
  if (grid.rule == BlockRule::kCeil && (bits & 0x7fffffu) != 0) ++code;
  return code < 0 ? 0 : code;
}

ADA_HOST_DEVICE static inline BlockFactor E8M0FactorOf(const BlockGrid& grid, float amax) {
  const int code = E8M0CodeOf(grid, amax);
  if (code == kNanE8M0) {
    const float nan = OfBits(kQuietNanBits);
    return {nan, nan, nan, false, false};
  }
  const float scale = PowerOfTwo(code - 127);
  return {scale, PowerOfTwo(127 - code), scale, code == 0, code == kNanE8M0 - 1};
}

// --- fp8_e4m3 ------------------------------------------------------------------------------------

// The factor of a stored scale under a tensor scale.
ADA_HOST_DEVICE static inline BlockFactor StoredFactorOf(const BlockGrid& grid,
                                                         const TensorFactor& tensor, float wanted) {
  const float stored = RoundToGrid(grid.scale, wanted), largest = OfBits(kLargestFp32Bits);
  const float encode = 1.0f / (stored * tensor.decode);
  return {stored, encode > largest ? largest : encode,
          stored * tensor.amax * grid.tensor_reciprocal, stored == 0, stored == 448.0f};
}

// kFourOverSix tries two scales for a block: one maps its largest magnitude to 4, one to 6.
ADA_HOST_DEVICE static inline BlockFactor FourFactorOf(const BlockGrid& grid,
                                                       const TensorFactor& tensor, float amax) {
  return StoredFactorOf(grid, tensor, amax / grid.top * tensor.encode * 1.5f);
}
ADA_HOST_DEVICE static inline BlockFactor SixFactorOf(const BlockGrid& grid,
                                                      const TensorFactor& tensor, float amax) {
  return StoredFactorOf(grid, tensor, amax / grid.top * tensor.encode);
}

// Rounds a scale, but not below `least`; NaN is kept.
ADA_HOST_DEVICE static inline float StoredAtLeast(const BlockGrid& grid, float wanted,
                                                  float least) {
  return RoundToGrid(grid.scale, wanted < least ? least : wanted);
}
ADA_HOST_DEVICE static inline BlockFactor ModeloptFactorOf(const BlockGrid& grid,
                                                           const TensorFactor& tensor, float amax) {
  const float least = PowerOfTwo(-9);
  float wanted = amax / (grid.top * tensor.decode);
  if (wanted == 0) wanted = 1;
  const float stored = StoredAtLeast(grid, wanted, least);
  const float decode = stored * tensor.decode;
  return {stored, 1.0f / decode, decode, stored <= least, stored >= 448.0f};
}

ADA_HOST_DEVICE static inline BlockFactor Fp8FactorOf(const BlockGrid& grid,
                                                      const TensorFactor& tensor, float amax) {
  if (grid.rule == BlockRule::kModelopt) return ModeloptFactorOf(grid, tensor, amax);
  const bool torchao = grid.rule == BlockRule::kTorchao;
  if (grid.tensor_scale && !torchao)
    return StoredFactorOf(grid, tensor, amax * (tensor.encode * grid.top_reciprocal));
  const float least = PowerOfTwo(-6);
  const float stored = StoredAtLeast(grid, amax / grid.top / tensor.decode, least);
  return {stored, tensor.encode / stored, stored * tensor.decode, stored <= least,
          stored >= 448.0f};
}

// --- ue5m3 ---------------------------------------------------------------------------------------

ADA_HOST_DEVICE static inline BlockFactor UE5M3FactorOf(const BlockGrid& grid, float amax) {
  const float stored = RoundToGrid(grid.scale, amax / grid.top);
  return {stored, 1.0f / stored, stored, stored == 0, stored == OfBits(grid.scale.largest)};
}

// --- fp32 ----------------------------------------------------------------------------------------

// Stores the reciprocal of `encode`, as Transformer Engine does. A block of zeros has scale 1; a
// factor that has to be a power of two is rounded down to one. NaN in a block then leaves the other
// elements as they are, if an element can be NaN.
ADA_HOST_DEVICE static inline BlockFactor Fp32FactorOf(const BlockGrid& grid, float amax) {
  if (amax == 0) return {};
  float encode = grid.top / amax;
  const bool bounded = BitsOf(encode) == kInfinityBits;
  if (bounded) encode = grid.largest_input;
  const std::uint32_t bits = BitsOf(amax);
  if (grid.power_of_two && (bits <= kInfinityBits || grid.has_nan)) {
    encode = bits == kInfinityBits  ? 0
             : bits > kInfinityBits ? 0.5f
                                    : OfBits(BitsOf(encode) & kInfinityBits);
  }
  const float stored = 1.0f / encode;
  return {stored, encode, stored, bounded, false};
}

// --- e6m2 ----------------------------------------------------------------------------------------

// A block that is not finite becomes NaN.
ADA_HOST_DEVICE static inline BlockFactor E6M2FactorOf(const BlockGrid& grid, float amax) {
  const float nan = OfBits(kQuietNanBits), least = PowerOfTwo(-48);
  if (BitsOf(amax) >= kInfinityBits) return {nan, nan, nan, false, false};
  const float seventh = OfBf16(Bf16CodeOf(grid.top_reciprocal));
  const double wanted = static_cast<double>(amax) * static_cast<double>(seventh);
  const float near = OfBf16(Bf16CodeOf(OddFloatOf(wanted)));
  const float stored = RoundToGrid(grid.scale, near < least ? least : near);
  return {stored, OfBf16(Bf16CodeOf(1.0f / stored)), stored, stored <= least,
          stored == OfBits(grid.scale.largest)};
}

// --- All kinds -----------------------------------------------------------------------------------

// `amax`: of the block. For kFourOverSix the six; the choice between the two needs the values.
ADA_HOST_DEVICE static inline BlockFactor BlockFactorOf(const BlockGrid& grid,
                                                        const TensorFactor& tensor, float amax) {
  if (grid.kind == BlockScale::kE8M0) return E8M0FactorOf(grid, amax);
  if (grid.kind == BlockScale::kFp32) return Fp32FactorOf(grid, amax);
  if (grid.kind == BlockScale::kUE5M3) return UE5M3FactorOf(grid, amax);
  if (grid.kind == BlockScale::kE6M2) return E6M2FactorOf(grid, amax);
  if (grid.rule == BlockRule::kFourOverSix) return SixFactorOf(grid, tensor, amax);
  return Fp8FactorOf(grid, tensor, amax);
}

// Under a scale of 0, which ue5m3 alone has where it divides, elements are 0.
ADA_HOST_DEVICE static inline float Scaled(const BlockGrid& grid, const BlockFactor& factor,
                                           float x) {
  if (!grid.divides) return x * factor.encode;
  return factor.decode == 0 ? 0 : x / factor.decode;
}
ADA_HOST_DEVICE static inline float ValueOf(const BlockGrid& grid, const BlockFactor& factor,
                                            float element) {
  const float value = element * factor.decode;
  return grid.divides ? value + 0.0f : value;
}

// The nearest element to a scaled value, ties to even, clamped to the largest one. Under
// plain_zeros zeros and NaN become +0, while a negative value that underflows becomes -0.
ADA_HOST_DEVICE static inline float RoundElement(const BlockGrid& grid, float scaled) {
  if (grid.plain_zeros && !(scaled < 0) && !(scaled > 0)) return 0;
  if (grid.nan_is_zero && scaled != scaled) return 0;
  return RoundToGrid(grid.element, scaled);
}

// The error that kFourOverSix sums for a value under one of its scales.
ADA_HOST_DEVICE static inline float FourOverSixError(const BlockGrid& grid,
                                                     const TensorFactor& tensor,
                                                     const BlockFactor& factor, float x) {
  const float element = RoundElement(grid, Scaled(grid, factor, x));
  const float difference = element * factor.stored * tensor.amax / grid.tensor_top - x;
  return grid.error == BlockError::kMse ? difference * difference
                                        : OfBits(MagnitudeBits(difference));
}

// The code of an element, with its sign in the top bit; for NaN 0x7f with the value's sign.
ADA_HOST_DEVICE static inline std::uint8_t ElementCodeOf(const NumberFormat& format,
                                                         float element) {
  const std::uint32_t bits = BitsOf(element), u = bits & 0x7fffffffu;
  const int width = format.exponent_bits + format.mantissa_bits;
  const std::uint32_t sign = bits >> 31 << width;
  if (u > kInfinityBits) return static_cast<std::uint8_t>(sign | ((1u << width) - 1));
  const int lowest = LowestExponentOf(format);
  if (static_cast<int>(u >> 23) - 127 >= lowest)
    return static_cast<std::uint8_t>(
        sign | ((u >> (23 - format.mantissa_bits)) -
                (static_cast<std::uint32_t>(127 - format.bias) << format.mantissa_bits)));
  const float integer = OfBits(u) * PowerOfTwo(format.mantissa_bits - lowest);
  return static_cast<std::uint8_t>(sign | static_cast<std::uint32_t>(integer));
}

// The code of a stored scale of e8m0, fp8_e4m3, ue5m3 or e6m2.
ADA_HOST_DEVICE static inline std::uint8_t ScaleCodeOf(BlockScale kind, float stored) {
  if (kind != BlockScale::kE8M0) return ElementCodeOf(ScaleFormatOf(kind), stored);
  const std::uint32_t bits = MagnitudeBits(stored);
  return static_cast<std::uint8_t>(bits >= kInfinityBits ? kNanE8M0 : bits >> 23);
}

}  // namespace ada
