// The table of the tile kernels.
#include "backend/cpu/kernels/amx/parts.h"

namespace ada::backend::cpu::ADA_ISA {

extern const TileKernels kTileTable;
const TileKernels kTileTable = {.multiplies = TileKernels::Multiplies::kParts,
                                .record_bytes = 5 << 18,
                                .pack_records = PackRecords,
                                .pack_weights = PackWeights,
                                .convolve = Convolve,
                                .weight_gradient = WeightGradient};

}  // namespace ada::backend::cpu::ADA_ISA
