// The backend on a GPU; see cuda_backend.h.
#include <cudnn_version.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "backend/cuda/context.h"
#include "backend/cuda/device/device_stream.h"
#include "backend/cuda/device/nccl_link.h"
#include "backend/cuda/library.h"
#include "backend/cuda/messages.h"
#include "backend/cuda/ops/pass_ops.h"
#include "error.h"
#include "io/text.h"

namespace ada::backend {
namespace {

using cuda::CheckCuda;

// The version of the CUDA runtime that the program is linked with.
std::string RuntimeVersion() {
  int version = 0;
  cudaRuntimeGetVersion(&version);
  return "CUDA " + cuda::CudaVersionText(version);
}

// cuDNN writes its version as one number, 91300 for 9.13.0.
std::string CudnnVersion() {
  const std::size_t version = cuda::LoadedCudnnVersion();
  if (version == 0) return "cuDNN not found";
  return "cuDNN " + std::to_string(version / 10000) + '.' + std::to_string(version / 100 % 100) +
         '.' + std::to_string(version % 100);
}

// index: CUDA's number, among the devices that this process sees.
cudaDeviceProp PropertiesOf(int index) {
  cudaDeviceProp properties{};
  CheckCuda(cudaGetDeviceProperties(&properties, index), "asking what the device is");
  return properties;
}

// What names the backend in logs, summaries and checkpoints: the device, its memory, the libraries,
// and the switches that are set.
cuda::BackendWords WordsFor(int index, const CudaSwitches& switches) {
  const cudaDeviceProp properties = PropertiesOf(index);
  const std::string chip =
      "sm_" + std::to_string(properties.major) + std::to_string(properties.minor);
  return {"cuda:" + std::to_string(index) + " (" + properties.name + ", " + chip + ", " +
              HumanBytes(properties.totalGlobalMem) + ", " + RuntimeVersion() + ", " +
              CudnnVersion() + ")" + cuda::SwitchesText(switches),
          chip};
}

// Throws where 8-bit units are asked for that the GPU does not have.
void CheckFp8(int index) {
  const cudaDeviceProp properties = PropertiesOf(index);
  const std::string missing = cuda::NoFp8Text(properties.name, properties.major, properties.minor);
  if (!missing.empty()) throw DeviceError("device cuda:" + std::to_string(index) + ": " + missing);
}

// Whether kernels of this program run there at all.
// Finds a program that has no code for this GPU, among other things.
void TryLaunch(int index) {
  cuda::DeviceStream stream(index);
  std::byte* memory = stream.Allocate(sizeof(cuda::PassValues));
  cuda::PassStore(stream, memory).Set(Pass());
  stream.Synchronize();
  stream.Free(memory);
}

}  // namespace

// From the driver to a kernel: what is missing first is named.
std::string WhyNoCuda(int index) {
  std::string missing = cuda::WhatIsMissing(index);
  if (missing.empty()) missing = cuda::WhichLibraryIsMissing();
  if (!missing.empty()) return missing;
  try {
    TryLaunch(index);
  } catch (const DeviceError& error) {
    return error.what();
  }
  return "";
}

// A build without MPI says how to make one that has it (nccl_absent.cpp).
std::string WhyNoCudaLink() { return cuda::WhyNoDeviceLink(); }

// UUIDs show whether two processes see the same GPU, however CUDA_VISIBLE_DEVICES numbers them. An
// error is cleared, because otherwise the next launch would report it.
std::vector<CudaDeviceId> VisibleCudaDevices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    cudaGetLastError();
    return {};
  }
  std::vector<CudaDeviceId> ids(static_cast<std::size_t>(count));
  for (int index = 0; index < count; ++index)
    std::memcpy(ids[static_cast<std::size_t>(index)].data(), PropertiesOf(index).uuid.bytes,
                sizeof(CudaDeviceId));
  return ids;
}

// Switches of the environment are read here, once. The link comes before the backend, as it changes
// how the stream is waited for.
std::unique_ptr<Backend> MakeCudaBackend(int index, const DeviceOptions& given,
                                         const Communicators& communicators) {
  DeviceOptions options = given;
  options.switches = cuda::SwitchesOf(given.switches, [](const char* n) { return std::getenv(n); });
  std::string missing = WhyNoCuda(index);
  if (missing.empty() && communicators.hosts != nullptr) missing = WhyNoCudaLink();
  if (!missing.empty())
    throw DeviceError("device cuda:" + std::to_string(index) + ": " + missing +
                      "; or use device.kind: cpu");
  if (options.fp8_hardware) CheckFp8(index);
  auto stream = std::make_unique<cuda::DeviceStream>(index, options.switches);
  std::unique_ptr<cuda::Link> link;
  if (communicators.hosts != nullptr) link = cuda::MakeDeviceLink(*stream, communicators, index);
  return cuda::MakeBackendOn(std::move(stream), WordsFor(index, options.switches), options,
                             std::move(link));
}

// It works without a GPU or libraries.
std::string CudaVersions() {
  const std::string nccl = cuda::DeviceLinkVersion();
  return RuntimeVersion() + ", " + CudnnVersion() + (nccl.empty() ? "" : ", " + nccl);
}

}  // namespace ada::backend
