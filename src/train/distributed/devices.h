// Which GPU each process of a run takes: one of its own.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "backend/cuda/cuda_backend.h"
#include "config/config.h"
#include "train/distributed/team.h"

namespace ada::train {

// What a process sees, as a message.
// Plain data of a fixed size, because it travels as bytes.
struct VisibleDevices {
  static constexpr int kMost = 64;
  int count = 0;
  std::array<backend::CudaDeviceId, kMost> ids = {};
};

// By rank, the process's own number of the GPU that it takes: of those that it sees, from number
// `first` on, the first that no lower rank of its node has taken. -1: none is left. Processes may
// see the same GPUs, or each only its own (CUDA_VISIBLE_DEVICES).
std::vector<int> AssignDevices(const std::vector<VisibleDevices>& visible,
                               const std::vector<int>& nodes, int first);

// The process's own device, and whether all have one.
struct DeviceOfSeveral {
  int index = -1;
  // Why some process has no GPU of its own that it can use, the same in all: the first of them, and
  // what to do; "": all have.
  std::string why_not;
};
// Collective.
DeviceOfSeveral FindDevice(const config::DeviceConfig& device, Team& team);

}  // namespace ada::train
