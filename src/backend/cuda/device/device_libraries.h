// Which of NVIDIA's libraries this backend needs, and whether a device can be used.
#pragma once
#include <cstddef>
#include <string>

#include "backend/cuda/library.h"

namespace ada::backend::cuda {

// Each is looked for when it is first used.
const Library& Driver();
const Library& Cudnn();
const Library& Cublas();
// cuDNN compiles its fused plans with it, and answers that it has none where it does not find it.
const Library& Nvrtc();

// For runs of several processes.
const Library& Nccl();

// 91300 for cuDNN 9.13.0; 0 if none is found.
std::size_t LoadedCudnnVersion();
// Names a missing library that matmuls need; "" where nothing is missing. Opens NVRTC before cuDNN
// asks for it.
std::string WhichLibraryIsMissing();
// What is missing for device `index` (driver, GPU, compute capability); "": nothing. Throws
// DeviceError if CUDA cannot tell what the device is.
std::string WhatIsMissing(int index);

}  // namespace ada::backend::cuda
