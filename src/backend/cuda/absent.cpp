// Replaces the backend in a program built without CUDA; see cuda_backend.h.
#include "backend/cuda/cuda_backend.h"
#include "error.h"

namespace ada::backend {

std::string WhyNoCuda(int /*index*/) { return "this program is built without the CUDA backend"; }

std::string WhyNoCudaLink() { return WhyNoCuda(0); }

std::vector<CudaDeviceId> VisibleCudaDevices() { return {}; }

std::unique_ptr<Backend> MakeCudaBackend(int index, const DeviceOptions& /*options*/,
                                         const Communicators& /*communicators*/) {
  throw DeviceError("device cuda:" + std::to_string(index) + ": " + WhyNoCuda(index) +
                    "; use device.kind: cpu, or build with tools/build.sh --cuda");
}

std::string CudaVersions() { return "not built in"; }

}  // namespace ada::backend
