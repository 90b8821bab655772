// Communication between GPUs by NVIDIA's NCCL, in builds that support several processes
// (nccl_absent.cpp is for other builds).
#pragma once
#include <memory>
#include <string>

#include "backend/cuda/device/device_stream.h"
#include "backend/cuda/link.h"

namespace ada::backend::cuda {

// Collective. On the stream's device `index`, the calling thread's. Whoever waits for the stream
// from now on does so with the hosts' patience. Throws DeviceError.
// It is to be destroyed before the stream and the communicators.
std::unique_ptr<Link> MakeDeviceLink(DeviceStream& stream, const Communicators& communicators,
                                     int index);
// What is missing for that, with advice; "": nothing.
std::string WhyNoDeviceLink();
// The version that was found: "NCCL 2.28.9"; "": not built in.
std::string DeviceLinkVersion();

}  // namespace ada::backend::cuda
