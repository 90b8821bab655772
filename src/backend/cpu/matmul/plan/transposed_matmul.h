// A convolution the other way round, made of the products of the convolution that it transposes:
// that one's data gradient is what it gives, its output the data gradient, and in the weights'
// gradient x and dy change places.
#pragma once
#include <memory>

#include "backend/cpu/matmul/plan/onednn_matmul.h"

namespace ada::backend::cpu {

// The convolution from y to x of which `geometry`, transposed, is the transposition.
MatmulGeometry ConvolutionOf(const MatmulGeometry& geometry);

// convolution: of ConvolutionOf(geometry), for as many images.
std::unique_ptr<Matmul> MakeTransposed(const MatmulGeometry& geometry, int images,
                                       std::unique_ptr<Matmul> convolution);

}  // namespace ada::backend::cpu
