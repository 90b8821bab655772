// How many images lie side by side in the records of direct products.
//
// A block of rows computes a step where any of its rows finds anything but zeros beside the image.
// The fewer columns it spans, the more steps it leaves out: a 3x3 kernel over images of 4x4 pixels
// takes 69 % of the products where a block of rows spans one column (of 8 images), 83 % where it
// spans two or four. And the fewer rows are left over: 28 columns of one image are computed as 32.
#pragma once
#include "backend/cpu/products/product_geometry.h"
#include "backend/cpu/tile_kernels.h"

namespace ada::backend::cpu {

// 1, 2, 4, 8 or 16, of `images` images: what takes the fewest products, as long as the records lie
// in a core's own cache. Of a forward product; and of a data gradient.
int ImagesForOutputs(const TileKernels& kernels, const ProductGeometry& geometry, int images);
int ImagesForDataGradient(const TileKernels& kernels, const ProductGeometry& geometry, int images);
// Of a weight gradient, which sums up row by row of the output and leaves out what it likes: so
// many that rows are long.
int ImagesForLongRows(const ProductGeometry& geometry, int images);

}  // namespace ada::backend::cpu
