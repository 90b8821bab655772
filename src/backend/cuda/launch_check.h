// The part of a launch on a device that needs CUDA's runtime.
#pragma once
#include <string_view>

namespace ada::backend::cuda {

// Throws DeviceError where the launch just asked for was refused.
void CheckLaunch(std::string_view kernel);

}  // namespace ada::backend::cuda
