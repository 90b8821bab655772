// The Hadamard transform of operands (backend/hadamard.h) along lines of any stride, where values
// that are transformed together may be neighbors in memory.
#pragma once
#include <vector>

#include "backend/cpu/kernels.h"
#include "number/blocks/block_quantizer.h"

namespace ada::backend::cpu {

// As HadamardOfLines, with the same bits.
void TransformLines(const Kernels& kernels, const std::vector<float>& signs,
                    const BlockLayout& layout, float* values);

}  // namespace ada::backend::cpu
