// Declarations of the tile kernels; tile_convolution.h and tile_weight_gradient.h say what they do.
#pragma once
#include "backend/cpu/tile_kernels.h"

namespace ada::backend::cpu::ADA_ISA {

void PackRecords(const PackRecordsArgs&);
void PackWeights(const PackWeightsArgs&);
void Convolve(const TileConvolutionArgs&);
void WeightGradient(const WeightGradientArgs&);

}  // namespace ada::backend::cpu::ADA_ISA
