// See device_libraries.h.
#include "backend/cuda/device/device_libraries.h"

#include <cudnn.h>
#include <dlfcn.h>

#include <cstdlib>

#include "backend/cuda/device/device_stream.h"
#include "backend/cuda/texts.h"
#include "core/error.h"

namespace ada::backend::cuda {
namespace {

// cuDNN's and cuBLAS's folders are what the build found; the loader's own folders come first.
const Library kCudnn{"cuDNN 9", "libcudnn.so.9", ADA_CUDNN_FOLDER};
const Library kCublas{"cuBLAS", "libcublas.so." ADA_CUDA_MAJOR, ADA_CUBLAS_FOLDER};
const Library kNvrtc{"NVRTC", "libnvrtc.so." ADA_CUDA_MAJOR, ADA_CUBLAS_FOLDER};

}  // namespace

Library::Library(const char* product, const char* name, const char* folder)
    : product_(product), name_(name), folder_(folder) {}

void Library::Load() const {
  std::call_once(loaded_, [this] {
    handle_ = dlopen(name_.c_str(), RTLD_NOW);
    if (handle_ != nullptr) return;
    missing_ = dlerror();
    if (!folder_.empty()) handle_ = dlopen((folder_ + '/' + name_).c_str(), RTLD_NOW);
  });
}

std::string Library::WhyMissing() const {
  Load();
  if (handle_ != nullptr) return "";
  return product_ + " cannot be loaded (" + missing_ +
         "); install it, or put its folder into LD_LIBRARY_PATH";
}

void* Library::Find(const char* function) const {
  Load();
  return handle_ == nullptr ? nullptr : dlsym(handle_, function);
}

void* Library::Get(const char* function) const {
  void* const found = Find(function);
  if (found != nullptr) return found;
  const std::string missing = WhyMissing();
  throw DeviceError(missing.empty() ? product_ + " has no function " + function : missing);
}

const Library& Cudnn() { return kCudnn; }
const Library& Cublas() { return kCublas; }
const Library& Nvrtc() { return kNvrtc; }

std::size_t LoadedCudnnVersion() {
  void* const found = Cudnn().Find("cudnnGetVersion");
  return found == nullptr ? 0 : reinterpret_cast<decltype(&cudnnGetVersion)>(found)();
}

std::string WhichLibraryIsMissing() {
  const std::string cudnn = Cudnn().WhyMissing();
  return cudnn.empty() ? Cublas().WhyMissing() : cudnn;
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
