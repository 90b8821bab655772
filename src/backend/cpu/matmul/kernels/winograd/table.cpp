// The table of the kernels for Winograd's algorithm.
#include "backend/cpu/matmul/kernels/winograd/transforms.h"

namespace ada::backend::cpu::ADA_ISA {

extern const WinogradKernels kWinogradTable;
const WinogradKernels kWinogradTable = {.transform_input = WinogradInput,
                                        .convolve = WinogradConvolve,
                                        .gradient = WinogradProducts,
                                        .transform_weights = WinogradWeights,
                                        .plain_gradient = WinogradPlain,
                                        .mark_nonzero = MarkNonzero,
                                        .find_few_terms = FindFewTerms,
                                        .room_multiple = kRowsOfOne};

}  // namespace ada::backend::cpu::ADA_ISA
