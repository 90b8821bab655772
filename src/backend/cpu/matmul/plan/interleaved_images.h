// Says how many images are interleaved in the packed input of direct convolutions.
//
// A row block computes a step where any of its rows finds anything but the zeros around the image.
// The fewer columns it spans, the more steps it leaves out: a 3x3 kernel over images of 4x4 pixels
// takes 69 % of the multiplications where a row block spans one column (of 8 images), 83 % where it
// spans two or four. Fewer rows are left over, too: 28 columns of one image are computed as 32.
#pragma once
#include "backend/cpu/matmul/matmul_geometry.h"
#include "backend/cpu/matmul/matmul_kernels.h"

namespace ada::backend::cpu {

// How many images a call with `images` images interleaves, for a forward pass and for a data
// gradient: 1, 2, 4, 8 or 16, whichever takes the fewest multiplications. It is more than
// InterleavedImages only where there are so many and their packed input fits a core's own cache;
// with few channels to read it is always InterleavedImages.
int ImagesForOutputs(const MatmulKernels& kernels, const MatmulGeometry& geometry, int images);
int ImagesForDataGradient(const MatmulKernels& kernels, const MatmulGeometry& geometry, int images);
// A weight gradient sums row by row of the output and may leave out single positions, so it
// interleaves so many images that rows are long. images: those that packed pixels hold, one or two
// each.
int ImagesForLongRows(const MatmulGeometry& geometry, int images);

}  // namespace ada::backend::cpu
