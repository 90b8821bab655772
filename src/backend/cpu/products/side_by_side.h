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

// Of a call with `images` images, for a forward product and for a data gradient: 1, 2, 4, 8 or 16,
// what takes the fewest products. More than ImagesTogether only as long as there are so many and
// their records lie in a core's own cache; with few channels to read always ImagesTogether.
int ImagesForOutputs(const TileKernels& kernels, const ProductGeometry& geometry, int images);
int ImagesForDataGradient(const TileKernels& kernels, const ProductGeometry& geometry, int images);
// Of a weight gradient, which sums up row by row of the output and may leave out single positions:
// so many that rows are long. images: those that records hold, one or two each.
int ImagesForLongRows(const ProductGeometry& geometry, int images);

}  // namespace ada::backend::cpu
