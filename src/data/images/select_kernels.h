// Which instruction set the inner loops of pictures use on this machine.
#pragma once
#include <vector>

#include "data/images/kernels/picture_kernels.h"

namespace ada::data {

// Those that this machine can run, the best first.
std::vector<const ResizeKernels*> ResizeKernelsHere();
const ResizeKernels& BestResizeKernels();
std::vector<const ColorKernels*> ColorKernelsHere();
const ColorKernels& BestColorKernels();

}  // namespace ada::data
