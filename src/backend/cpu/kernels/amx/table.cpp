// The table of the tile kernels.
#include "backend/cpu/kernels/amx/parts.h"

namespace ada::backend::cpu::ADA_ISA {

extern const TileKernels kTileTable;
const TileKernels kTileTable = {.pack_records = PackRecords,
                                .pack_weights = PackWeights,
                                .convolve = Convolve,
                                .weight_gradient = WeightGradient};

}  // namespace ada::backend::cpu::ADA_ISA
