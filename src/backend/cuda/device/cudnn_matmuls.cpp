// Products on a device: those of two matrices by cuBLAS, other convolutions by cuDNN. Owns the
// handles and the workspace that all plans share.
#include <cudnn.h>
#include <cudnn_frontend_version.h>
#include <nvrtc.h>

#include <string>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/device/cudnn_plans.h"
#include "backend/cuda/device/device_stream.h"
#include "backend/cuda/matmuls.h"
#include "backend/cuda/messages.h"
#include "error.h"

namespace ada::backend::cuda {
namespace {

void Check(cudnnStatus_t status, const char* doing) {
  if (status != CUDNN_STATUS_SUCCESS)
    throw DeviceError(std::string("cuDNN, ") + doing + ": " + cudnnGetErrorString(status));
}

// "CUDA 13.0, driver 13.0, NVRTC 13.0": NVRTC compiles what a plan is made of, for the driver.
std::string CompilerVersions() {
  int runtime = 0, driver = 0, major = 0, minor = 0;
  CheckCuda(cudaRuntimeGetVersion(&runtime), "asking for the version of CUDA");
  CheckCuda(cudaDriverGetVersion(&driver), "asking for the version of the driver");
  nvrtcVersion(&major, &minor);
  return "CUDA " + CudaVersionText(runtime) + ", driver " + CudaVersionText(driver) + ", NVRTC " +
         std::to_string(major) + "." + std::to_string(minor);
}

// What a plan is good for: "NVIDIA H200, sm_90, cuDNN 91900, frontend 1.32, CUDA 13.0 ...".
std::string PlanMaker() {
  int device = 0;
  cudaDeviceProp properties;
  CheckCuda(cudaGetDevice(&device), "asking for the device");
  CheckCuda(cudaGetDeviceProperties(&properties, device), "asking for the device's properties");
  return std::string(properties.name) + ", sm_" + std::to_string(properties.major) +
         std::to_string(properties.minor) + ", cuDNN " + std::to_string(cudnnGetVersion()) +
         ", frontend " + std::to_string(CUDNN_FRONTEND_MAJOR_VERSION) + "." +
         std::to_string(CUDNN_FRONTEND_MINOR_VERSION) + ", " + CompilerVersions();
}

// cuDNN's handle, bound to the stream: plans run in its order.
class Handle {
 public:
  explicit Handle(Stream& stream) {
    Check(cudnnCreate(&handle_), "making a handle");
    const cudnnStatus_t status = cudnnSetStream(handle_, stream.handle());
    if (status != CUDNN_STATUS_SUCCESS) cudnnDestroy(handle_);
    Check(status, "choosing the stream");
  }
  ~Handle() { cudnnDestroy(handle_); }
  Handle(const Handle&) = delete;
  cudnnHandle_t get() const { return handle_; }

 private:
  cudnnHandle_t handle_ = nullptr;
};

// Numbers that libraries read on the device.
class Constants {
 public:
  explicit Constants(Stream& stream) : stream_(stream), memory_(stream.Allocate(sizeof kValues)) {
    stream.CopyToDevice(memory_, kValues, sizeof kValues);
  }
  ~Constants() { stream_.Free(memory_); }
  Constants(const Constants&) = delete;
  const float* one() const { return reinterpret_cast<const float*>(memory_); }
  const float* zero() const { return one() + 1; }
  const float* two() const { return one() + 2; }

 private:
  static constexpr float kValues[] = {1, 0, 2};
  Stream& stream_;
  std::byte* memory_;
};

// The order of members matters: later ones point to those before them.
class DeviceMatmuls final : public Matmuls {
 public:
  DeviceMatmuls(Stream& stream, const DeviceOptions& options)
      : workspace_(stream),
        handle_(stream),
        constants_(stream),
        cache_(PlanCacheFolder(), PlanMaker()),
        matrices_(stream, constants_.one(), constants_.zero()),
        context_{handle_.get(),
                 stream,
                 workspace_,
                 cache_,
                 constants_.one(),
                 constants_.two(),
                 options.autotune,
                 options.deterministic,
                 stream.switches().cudnn_skip,
                 diagnostics_},
        cublas_(stream.switches().cublas) {}

  std::unique_ptr<Matmul> Make(const MatmulRequest& request) override {
    return IsCublas(request) ? matrices_.Make(request) : MakeConvolution(context_, request);
  }
  std::unique_ptr<BatchedMatmul> MakeBatched(const BatchedRequest& request) override {
    return matrices_.MakeBatched(request);
  }
  void GrowWorkspace() override { workspace_.Grow(); }
  std::size_t workspace_bytes() const override {
    return workspace_.bytes() + matrices_.workspace_bytes();
  }
  std::vector<std::string> TakeDiagnostics() override {
    std::vector<std::string> lines = cache_.TakeDiagnostics();
    lines.insert(lines.end(), diagnostics_.begin(), diagnostics_.end());
    diagnostics_.clear();
    return lines;
  }

 private:
  // Matmuls of 8-bit codes are cuDNN's; linear layers with other operands are cuBLAS's whatever the
  // switch is.
  bool IsCublas(const MatmulRequest& request) const {
    return IsMatrix(request.geometry) && !HasCodes(request) && (cublas_ || request.geometry.linear);
  }

  Scratch workspace_;
  Handle handle_;
  Constants constants_;
  PlanCache cache_;
  CublasMatmuls matrices_;
  std::vector<std::string> diagnostics_;
  CudnnContext context_;
  const bool cublas_;  // of convolutions; linear layers are always its own
};

}  // namespace

std::unique_ptr<Matmuls> MakeMatmuls(Stream& stream, const DeviceOptions& options) {
  return std::make_unique<DeviceMatmuls>(stream, options);
}

}  // namespace ada::backend::cuda
