// Where one call of a kernel's phase stands in its launch. What a kernel is: launch.h.
#pragma once
#include "core/host_device.h"

namespace ada::backend::cuda {

struct ThreadIndex {
  int block = 0, thread = 0;  // this one, of the launch and of the block
  int blocks = 0;             // of the launch
};

}  // namespace ada::backend::cuda
