// Kernels for products of our own: tables beside Kernels, of three kinds.
//
// Parts, for processors with a matrix unit (AMX with bf16): the unit multiplies a tile of 16 rows
// of 32 bf16 values with one of 32 x 16 and adds to 16 x 16 sums in fp32; kernels/amx/parts.h says
// how wider values become bf16.
//
//   records   what a convolution reads, as rows of tiles: for each pixel and each 32 channels 64
//             bytes a part; with up to 16 channels both parts in one row of 64 bytes
//   tiles of weights   32 x 16 (in x out channels), pairs of input channels side by side
//
// Floats, for every processor with fused multiply-adds: values in fp32, sums in registers
// (kernels/direct).
//
//   records   for each pixel and each 16 channels 64 bytes
//   tiles of weights   16 x 16 (in x out channels)
//
// Pairs, for AVX-512 with products of bf16: the same kernels, whose factors are pairs of bf16
// values: of neighbouring channels, in weight gradients of two images. For formats of at most 8
// significant bits: products are exact, sums fp32; what is subnormal in fp32 the instruction takes
// for zero.
//
//   records   for each pixel and each 32 channels 64 bytes
//   tiles of weights   32 x 16, pairs of input channels side by side
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "backend/cpu/kernels.h"
#include "core/number_format.h"

namespace ada::backend::cpu {

// How many bf16 parts a value of `format` is the sum of (kernels/amx/parts.h), as far as
// significant bits go: 1 or 2; 0: it takes more.
int PartsOf(const NumberFormat& format);

struct PackRecordsArgs;        // tile_convolution.h
struct PackWeightsArgs;        // tile_convolution.h
struct TileConvolutionArgs;    // tile_convolution.h
struct WeightGradientArgs;     // tile_weight_gradient.h
struct DirectGradientArgs;     // direct_weight_gradient.h
struct TilesToRowsArgs;        // direct_weight_gradient.h
struct DepthwiseRowArgs;       // depthwise.h
struct DepthwiseGradientArgs;  // depthwise.h
struct DepthwiseWidenArgs;     // depthwise.h
struct WinogradKernels;        // winograd.h

struct TileKernels {
  enum class Multiplies : std::uint8_t { kParts, kFloats, kPairs };
  Multiplies multiplies;
  std::int64_t record_bytes;  // of records that a core's own cache holds beside weights and sums
  // Rows of a tile that one pass over the steps computes, 8 or 16, of at least 32 output channels
  // (of fewer: 16).
  int rows = 16;
  void (*pack_records)(const PackRecordsArgs&);
  void (*pack_weights)(const PackWeightsArgs&);
  void (*convolve)(const TileConvolutionArgs&);
  void (*weight_gradient)(const WeightGradientArgs&) = nullptr;  // of parts
  void (*direct_gradient)(const DirectGradientArgs&) = nullptr;  // of floats and pairs
  void (*tiles_to_rows)(const TilesToRowsArgs&) = nullptr;       // of floats and pairs
  // Convolutions of few channels a group (depthwise.h) in fp32; of floats and pairs.
  void (*depthwise_row)(const DepthwiseRowArgs&) = nullptr;
  void (*depthwise_gradient)(const DepthwiseGradientArgs&) = nullptr;
  void (*widen_pixels)(const DepthwiseWidenArgs&) = nullptr;
  // 3x3 convolutions by fewer products, in fp32, as SelectTileKernels says; of pairs: those that
  // the kernels of floats, which come next, use.
  const WinogradKernels* winograd = nullptr;
  bool of_parts() const { return multiplies == Multiplies::kParts; }
  bool of_floats() const { return multiplies == Multiplies::kFloats; }
  bool of_pairs() const { return multiplies == Multiplies::kPairs; }
};

namespace amx {
extern const TileKernels kTileTable;
}
namespace avx2 {
extern const TileKernels kDirectTable;
extern const WinogradKernels kWinogradTable;
}  // namespace avx2
namespace avx512 {
extern const TileKernels kDirectTable;
extern const WinogradKernels kWinogradTable;
}  // namespace avx512
namespace avx512bf16 {
extern const TileKernels kDirectTable;
}

// What this processor, its system and ADA_ISA permit, the best first: a layer uses the first that
// can compute it, else oneDNN. None with sse2, and where ADA_PRODUCTS=onednn asks for oneDNN's
// products alone; with ADA_PRODUCTS=direct without Winograd's algorithm. DeviceError where
// ADA_PRODUCTS is something else.
std::vector<TileKernels> SelectTileKernels();
// What ADA_PRODUCTS asks for, as a part of a backend's name: ", direct products"; else nothing.
std::string NameOfProducts();

}  // namespace ada::backend::cpu
