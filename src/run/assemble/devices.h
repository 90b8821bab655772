// Assigns each process of a run a GPU of its own.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "backend/cuda/cuda_backend.h"
#include "config/config.h"
#include "step/team.h"

namespace ada::run {

// The GPUs that a process sees, as a message.
// Plain data of a fixed size, because it travels as bytes.
struct VisibleDevices {
  static constexpr int kMost = 64;
  int count = 0;
  std::array<backend::CudaDeviceId, kMost> ids = {};
};

// Returns for each rank the number that its GPU has in that process: the first GPU, of those that
// it sees from number `first` on, that no lower rank of its node has taken. -1: none is left.
// Processes may see the same GPUs, or each only its own (CUDA_VISIBLE_DEVICES).
std::vector<int> AssignDevices(const std::vector<VisibleDevices>& visible,
                               const std::vector<int>& nodes, int first);

// The process's own device, and whether all have one.
struct DeviceOfSeveral {
  int index = -1;
  // Why some process cannot use a GPU of its own (for the first such process, with what to do about
  // it); the same text in all processes. Empty: all have one.
  std::string why_not;
};
// Collective.
DeviceOfSeveral FindDevice(const config::DeviceConfig& device, step::Team& team);

}  // namespace ada::run
