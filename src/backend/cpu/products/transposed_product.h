// A convolution the other way round, made of the products of the convolution that it transposes:
// that one's data gradient is what it gives, its output the data gradient, and in the weights'
// gradient x and dy change places.
#pragma once
#include <memory>

#include "backend/cpu/products/product.h"

namespace ada::backend::cpu {

// The convolution from y to x of which `geometry`, transposed, is the transposition.
ProductGeometry ConvolutionOf(const ProductGeometry& geometry);

// convolution: of ConvolutionOf(geometry), for as many images.
std::unique_ptr<Product> MakeTransposed(const ProductGeometry& geometry, int images,
                                        std::unique_ptr<Product> convolution);

}  // namespace ada::backend::cpu
