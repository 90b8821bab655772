// Kernels for processors with a matrix unit (AMX with bf16): a table beside Kernels, where there is
// one. The unit multiplies a tile of 16 rows of 32 bf16 values with one of 32 x 16 and adds to 16 x
// 16 sums in fp32; kernels/amx/parts.h says how wider values become bf16.
//
//   records   what a convolution reads, as rows of tiles: for each pixel and each 32 channels 64
//             bytes a part; with up to 16 channels both parts in one row of 64 bytes
//   tiles of weights   32 x 16 (in x out channels), pairs of input channels side by side
#pragma once
#include <cstddef>
#include <cstdint>

#include "backend/cpu/kernels.h"
#include "core/number_format.h"

namespace ada::backend::cpu {

// How many bf16 parts a value of `format` is the sum of (kernels/amx/parts.h), as far as
// significant bits go: 1 or 2; 0: it takes more.
int PartsOf(const NumberFormat& format);

struct PackRecordsArgs;      // tile_convolution.h
struct PackWeightsArgs;      // tile_convolution.h
struct TileConvolutionArgs;  // tile_convolution.h
struct WeightGradientArgs;   // tile_weight_gradient.h

struct TileKernels {
  void (*pack_records)(const PackRecordsArgs&);
  void (*pack_weights)(const PackWeightsArgs&);
  void (*convolve)(const TileConvolutionArgs&);
  void (*weight_gradient)(const WeightGradientArgs&);
};

namespace amx {
extern const TileKernels kTileTable;
}

// Null where the processor has no such unit, the kernel does not permit its use, or ADA_ISA names a
// lesser instruction set.
const TileKernels* SelectTileKernels();

}  // namespace ada::backend::cpu
