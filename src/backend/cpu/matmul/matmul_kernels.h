// Kernels for convolutions and linear layers, in tables of their own, of three kinds.
//
// Bf16 split, for processors with a matrix unit (AMX with bf16): the unit multiplies a tile of 16
// rows of 32 bf16 values with one of 32 x 16 and adds to 16 x 16 sums in fp32;
// matmul/kernels/amx/bf16_split.h says how a wider value is split into a sum of bf16 values.
//
//   input     as rows of tiles: for each pixel and each 32 channels 64
//             bytes a part; with up to 16 channels both parts in one row of 64 bytes
//   weights   32 x 16 (in x out channels), pairs of input channels interleaved
//
// Fp32, for every processor with fused multiply-adds: values in fp32, sums in registers
// (matmul/kernels/direct).
//
//   input     for each pixel and each 16 channels 64 bytes
//   weights   16 x 16 (in x out channels)
//
// Bf16 dot, for AVX-512 with bf16 dot products: the same kernels, whose factors are pairs of bf16
// values, taken from neighboring channels and in weight gradients from two images. They serve
// formats of at most 8 significant bits: products are exact and sums fp32; the instruction takes
// what is subnormal in fp32 for zero.
//
//   input     for each pixel and each 32 channels 64 bytes
//   weights   32 x 16, pairs of input channels interleaved
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "backend/cpu/kernels.h"
#include "number/number_format.h"

namespace ada::backend::cpu {

// How many bf16 values a value of `format` is the sum of (matmul/kernels/amx/bf16_split.h), as far
// as significant bits go: 1 or 2; 0: it takes more.
int PartsOf(const NumberFormat& format);

struct PackInputArgs;          // packed_convolution_args.h
struct PackWeightsArgs;        // packed_convolution_args.h
struct PackedConvolutionArgs;  // packed_convolution_args.h
struct WeightGradientArgs;     // weight_gradient_args.h
struct DirectGradientArgs;     // weight_gradient_args.h
struct TilesToRowsArgs;        // weight_gradient_args.h
struct DepthwiseRowArgs;       // depthwise.h
struct DepthwiseGradientArgs;  // depthwise.h
struct DepthwiseWidenArgs;     // depthwise.h
struct WinogradKernels;        // winograd_kernels.h

// One table for each kind and instruction set. A null member: this kind has no such kernel. Tables
// are constants; a layer's op holds a pointer to the copy that the backend keeps.
struct MatmulKernels {
  enum class Multiplies : std::uint8_t { kBf16Split, kFp32, kBf16Dot };
  Multiplies multiplies;
  std::int64_t packed_bytes;  // packed input that a core's own cache holds besides weights and sums
  // Rows of a row block that one pass over the steps computes, 8 or 16, for at least 32 output
  // channels (for fewer: 16).
  int rows = 16;
  void (*pack_input)(const PackInputArgs&);
  void (*pack_weights)(const PackWeightsArgs&);
  void (*convolve)(const PackedConvolutionArgs&);
  void (*weight_gradient)(const WeightGradientArgs&) = nullptr;  // for bf16 split
  void (*direct_gradient)(const DirectGradientArgs&) = nullptr;  // for fp32 and bf16 dot
  void (*tiles_to_rows)(const TilesToRowsArgs&) = nullptr;       // for fp32 and bf16 dot
  // Convolutions of few channels a group (depthwise.h) in fp32; for fp32 and bf16 dot.
  void (*depthwise_row)(const DepthwiseRowArgs&) = nullptr;
  void (*depthwise_gradient)(const DepthwiseGradientArgs&) = nullptr;
  void (*widen_pixels)(const DepthwiseWidenArgs&) = nullptr;
  // 3x3 convolutions by Winograd's algorithm, in fp32, as SelectMatmulKernels says; for bf16 dot
  // those that the fp32 kernels, which come next, use.
  const WinogradKernels* winograd = nullptr;
  bool on_bf16_split() const { return multiplies == Multiplies::kBf16Split; }
  bool on_fp32() const { return multiplies == Multiplies::kFp32; }
  bool on_bf16_dot() const { return multiplies == Multiplies::kBf16Dot; }
};

namespace amx {
extern const MatmulKernels kAmxTable;
}
namespace avx2 {
extern const MatmulKernels kDirectTable;
extern const WinogradKernels kWinogradTable;
}  // namespace avx2
namespace avx512 {
extern const MatmulKernels kDirectTable;
extern const WinogradKernels kWinogradTable;
}  // namespace avx512
namespace avx512bf16 {
extern const MatmulKernels kDirectTable;
}

// What this processor, its system and ADA_ISA permit, the best first: a layer uses the first that
// can compute it, else oneDNN. None with sse2 and generic, and where ADA_PRODUCTS=onednn asks for
// oneDNN only; with ADA_PRODUCTS=direct without Winograd's algorithm. DeviceError where
// ADA_PRODUCTS is something else.
std::vector<MatmulKernels> SelectMatmulKernels();
// What ADA_PRODUCTS asks for, as a part of a backend's name: ", direct products"; else nothing.
std::string NameOfMatmuls();

}  // namespace ada::backend::cpu
