// The table of the kernels for direct products.
#include "backend/cpu/kernels/direct/sums.h"

namespace ada::backend::cpu::ADA_ISA {

extern const TileKernels kDirectTable;
const TileKernels kDirectTable = {
    .multiplies = kPairs ? TileKernels::Multiplies::kPairs : TileKernels::Multiplies::kFloats,
    .record_bytes = 1 << 19,
    .rows = kRowsOfTwo > 0 ? kRowsOfTwo : 16,
    .pack_records = PackRecordsForSums,
    .pack_weights = PackWeightsForSums,
    .convolve = ConvolveBySums,
    .direct_gradient = DirectGradient,
    .tiles_to_rows = TilesToRows,
    .depthwise_row = DepthwiseRow,
    .depthwise_gradient = DepthwiseGradient,
    .widen_pixels = WidenPixels};

}  // namespace ada::backend::cpu::ADA_ISA
