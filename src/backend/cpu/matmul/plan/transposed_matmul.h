// A transposed convolution, computed by the convolution that it transposes: the output is that
// one's data gradient, the data gradient that one's output, and in the weight gradient x and dy are
// exchanged.
#pragma once
#include <memory>

#include "backend/cpu/matmul/plan/fp32_matmul.h"

namespace ada::backend::cpu {

// The convolution from y to x of which `geometry`, transposed, is the transposition.
MatmulGeometry ConvolutionOf(const MatmulGeometry& geometry);

// convolution: of ConvolutionOf(geometry), for as many images.
std::unique_ptr<Matmul> MakeTransposed(const MatmulGeometry& geometry, int images,
                                       std::unique_ptr<Matmul> convolution);

}  // namespace ada::backend::cpu
