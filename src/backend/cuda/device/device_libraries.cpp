// See library.h.
#include <cudnn.h>

#include <cstdlib>
#include <vector>

#include "backend/cuda/device/device_stream.h"
#include "backend/cuda/library.h"
#include "backend/cuda/messages.h"
#include "error.h"

namespace ada::backend::cuda {
namespace {

// Where to look besides the loader's own places: the folder of the build, and those that the
// environment names.
std::vector<std::string> Folders() {
  return CudaFolders({ADA_CUBLAS_FOLDER, std::getenv("LD_LIBRARY_PATH"), std::getenv("CUDA_HOME"),
                      std::getenv("CUDA_PATH"), ADA_CUDA_MAJOR});
}
// built_with: the folder of the build's own, which comes first; "": not known.
std::vector<std::string> FoldersOf(const std::string& built_with) {
  std::vector<std::string> folders = Folders();
  if (!built_with.empty()) folders.insert(folders.begin(), built_with);
  return folders;
}

}  // namespace

// The driver is installed with the system: the loader finds it, or it is not there.
const Library& Driver() {
  static const Library driver{"NVIDIA's driver", "libcuda.so.1", {}};
  return driver;
}
// A change of the first number breaks programs, which is why it is part of the file's name.
const Library& Cudnn() {
  static const Library cudnn{"cuDNN 9", "libcudnn.so.9", FoldersOf(ADA_CUDNN_FOLDER)};
  return cudnn;
}
const Library& Cublas() {
  static const Library cublas{"cuBLAS", "libcublas.so." ADA_CUDA_MAJOR, Folders()};
  return cublas;
}
const Library& Nvrtc() {
  static const Library nvrtc{"NVRTC", "libnvrtc.so." ADA_CUDA_MAJOR, Folders()};
  return nvrtc;
}

const Library& Nccl() {
  static const Library nccl{"NCCL 2", "libnccl.so.2", FoldersOf(ADA_NCCL_FOLDER)};
  return nccl;
}

// Does not throw, unlike a call of cudnnGetVersion.
std::size_t LoadedCudnnVersion() {
  void* const found = Cudnn().Find("cudnnGetVersion");
  return found == nullptr ? 0 : reinterpret_cast<decltype(&cudnnGetVersion)>(found)();
}

// The driver first: without it nothing else is of use.
std::string WhichLibraryIsMissing() {
  for (const Library* library : {&Driver(), &Nvrtc(), &Cudnn(), &Cublas()})
    if (std::string missing = library->WhyMissing(); !missing.empty()) return missing;
  return "";
}

// CUDA's runtime answers even where there is no driver, and its status says which case it is.
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
