// The table of the kernels for direct products in fp32.
#include "backend/cpu/kernels/direct/sums.h"

namespace ada::backend::cpu::ADA_ISA {

extern const TileKernels kDirectTable;
const TileKernels kDirectTable = {.multiplies = TileKernels::Multiplies::kFloats,
                                  .record_bytes = 1 << 19,
                                  .pack_records = PackRecordsOfFloats,
                                  .pack_weights = PackWeightsOfFloats,
                                  .convolve = ConvolveFloats,
                                  .direct_gradient = DirectGradient};

}  // namespace ada::backend::cpu::ADA_ISA
