// Messages for a GPU that cannot be used or whose memory is used up.
#pragma once
#include <cstdint>
#include <string>

namespace ada::backend::cuda {

// "13.0" of 13000, the way CUDA writes its versions.
std::string CudaVersionText(int version);
// driver: the CUDA version that the driver supports; 0: there is no driver.
std::string NoDriverText(int driver, int runtime);
// visible: CUDA_VISIBLE_DEVICES; null: not set.
std::string NoDeviceText(const char* visible);
std::string NoSuchDeviceText(int count);
// "" where the GPU is new enough.
std::string TooOldText(const std::string& name, int major, int minor);

// For a chip without 8-bit units; "" where there are some.
std::string NoFp8Text(const std::string& name, int major, int minor);

struct MemoryState {
  std::uint64_t wanted = 0, allocated = 0;  // now, and by this run before
  std::uint64_t free = 0, total = 0;        // of the device
};
std::string OutOfMemoryText(int index, const MemoryState& memory);

}  // namespace ada::backend::cuda
