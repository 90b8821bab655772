// The table of the tile kernels.
#include "backend/cpu/kernels/amx/functions.h"

namespace ada::backend::cpu::ADA_ISA {

extern const TileKernels kTileTable;
const TileKernels kTileTable = {PackRecords, PackWeights, Convolve, WeightGradient};

}  // namespace ada::backend::cpu::ADA_ISA
