// Errors of CUDA's runtime as this program's own.
#pragma once
#include <cuda_runtime_api.h>

#include <string>

#include "core/error.h"

namespace ada::backend::cuda {

// Throws DeviceError "CUDA, <doing>: <CUDA's words>" unless all is well.
void CheckCuda(cudaError_t status, const char* doing);

// For device `index`: the driver, the GPU and its age. "" where all are there.
std::string WhatIsMissing(int index);

}  // namespace ada::backend::cuda
