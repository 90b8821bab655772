// The backend on the host executor; see cuda_backend.h.
#include "backend/cuda/backend_on_stream.h"
#include "backend/cuda/host/host_stream.h"

namespace ada::backend {

std::unique_ptr<Backend> MakeHostExecutedBackend(const DeviceOptions& options) {
  return cuda::MakeBackendOn(std::make_unique<cuda::HostStream>(),
                             {"cuda kernels on the host's processor", "host"}, options);
}

}  // namespace ada::backend
