// The table of the AMX kernels.
#include "backend/cpu/matmul/kernels/amx/bf16_split.h"

namespace ada::backend::cpu::ADA_ISA {

extern const MatmulKernels kAmxTable;
const MatmulKernels kAmxTable = {.multiplies = MatmulKernels::Multiplies::kBf16Split,
                                 .packed_bytes = 5 << 18,
                                 .pack_input = PackInput,
                                 .pack_weights = PackWeights,
                                 .convolve = Convolve,
                                 .weight_gradient = WeightGradient};

}  // namespace ada::backend::cpu::ADA_ISA
