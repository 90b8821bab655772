// The backend apart from where it runs: a device's stream or the host executor's.
#pragma once
#include <memory>
#include <string>

#include "backend/backend.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/link.h"
#include "backend/cuda/stream.h"

namespace ada::backend::cuda {

// What the backend reports about itself; see Backend.
struct BackendWords {
  std::string describe, instruction_set;
};
// link: between this stream's device and those of other processes; null: there are none.
std::unique_ptr<Backend> MakeBackendOn(std::unique_ptr<Stream> stream, const BackendWords& words,
                                       const DeviceOptions& options,
                                       std::unique_ptr<Link> link = nullptr);

}  // namespace ada::backend::cuda
