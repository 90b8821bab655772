// See device_errors.h.
#include "backend/cuda/device/device_errors.h"

#include <cstdlib>

#include "backend/cuda/texts.h"

namespace ada::backend::cuda {

void CheckCuda(cudaError_t status, const char* doing) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // an error that does not last is told once
  throw DeviceError("CUDA, " + std::string(doing) + ": " + cudaGetErrorString(status));
}

std::string WhatIsMissing(int index) {
  int count = 0, driver = 0, runtime = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaErrorInsufficientDriver) {
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    return NoDriverText(driver, runtime);
  }
  if (status == cudaErrorNoDevice || (status == cudaSuccess && count == 0))
    return NoDeviceText(std::getenv("CUDA_VISIBLE_DEVICES"));
  if (status != cudaSuccess) return cudaGetErrorString(status);
  if (index >= count) return NoSuchDeviceText(count);
  cudaDeviceProp properties{};
  CheckCuda(cudaGetDeviceProperties(&properties, index), "asking what the device is");
  return TooOldText(properties.name, properties.major, properties.minor);
}

}  // namespace ada::backend::cuda
