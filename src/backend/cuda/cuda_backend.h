// The CUDA backend: cuDNN for products, own kernels for everything else; fp16 and bf16 stored as
// such, other formats emulated. All work lies in one stream, and a step that was seen once is
// recorded and replayed.
#pragma once
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/communicators.h"
#include "backend/cuda/switches.h"

namespace ada::backend {

struct DeviceOptions {
  bool autotune = false;      // products: measure the plans instead of asking the heuristics
  bool deterministic = true;  // products: only plans that give the same bytes every time
  // Uses fp8 tensor cores for fp8_e4m3 and fp8_e5m2 where the library can; otherwise emulates.
  bool fp8_hardware = false;
  // MakeCudaBackend: overridden by environment variables.
  CudaSwitches switches = {};
};

// On device `index`, which is CUDA's number of it. Throws DeviceError where it cannot be used, or
// lacks what the options ask for.
// communicators: `hosts` is not null where several processes share a run, each with a device; all
// make their backends together.
std::unique_ptr<Backend> MakeCudaBackend(int index, const DeviceOptions& options,
                                         const Communicators& communicators = {});
// Why device `index` cannot be used, with what to do; "" where it can.
std::string WhyNoCuda(int index);
// Why the devices of several processes cannot communicate (NCCL), with advice; "" if they
// can.
std::string WhyNoCudaLink();
// Ids that identify the devices visible to this process (CUDA_VISIBLE_DEVICES) independently of
// their numbers here, in the order of these numbers.
using CudaDeviceId = std::array<char, 16>;
std::vector<CudaDeviceId> VisibleCudaDevices();
// "CUDA 13.0, cuDNN 9.13.0": the versions built in and found, with NCCL if the build supports
// several processes; "not built in".
std::string CudaVersions();

// The same ops, recordings and memory on the host's processor, kernel by kernel in plain loops: for
// tests. Its own library, ada_backend_cuda_host.
std::unique_ptr<Backend> MakeHostExecutedBackend(const DeviceOptions& options = {},
                                                 const Communicators& communicators = {});

}  // namespace ada::backend
