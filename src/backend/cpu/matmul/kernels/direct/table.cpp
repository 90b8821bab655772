// The table of the direct kernels.
#include "backend/cpu/matmul/kernels/direct/sums.h"

namespace ada::backend::cpu::ADA_ISA {

extern const MatmulKernels kDirectTable;
const MatmulKernels kDirectTable = {
    .multiplies = kPairs ? MatmulKernels::Multiplies::kBf16Dot : MatmulKernels::Multiplies::kFp32,
    .packed_bytes = 1 << 19,
    .rows = kRowsOfTwo > 0 ? kRowsOfTwo : 16,
    .pack_input = PackInputForSums,
    .pack_weights = PackWeightsForSums,
    .convolve = ConvolveBySums,
    .direct_gradient = DirectGradient,
    .tiles_to_rows = TilesToRows,
    .depthwise_row = DepthwiseRow,
    .depthwise_gradient = DepthwiseGradient,
    .widen_pixels = WidenPixels};

}  // namespace ada::backend::cpu::ADA_ISA
