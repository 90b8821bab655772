// For builds without support for several processes.
#include "backend/cuda/device/nccl_link.h"
#include "error.h"

namespace ada::backend::cuda {

std::unique_ptr<Link> MakeDeviceLink(DeviceStream&, const Communicators&, int) {
  throw DeviceError(WhyNoDeviceLink());
}
std::string WhyNoDeviceLink() {
  return "this program is built without NCCL; build it with tools/build.sh --cuda --mpi";
}
std::string DeviceLinkVersion() { return ""; }

}  // namespace ada::backend::cuda
