// A thread's loop over memory that loads several values ahead of their use, so that with few
// threads the loop does not wait for every single load.
#pragma once
#include <cstdint>

#include "number/host_device.h"

namespace ada::backend::cuda {

// use(i, load(i)) for i = begin, begin + step, ... below end, in this order. Up to kAhead are
// loaded before the first is used: what use() stores, no other load() of the loop may read.
template <int kAhead = 8, class LoadItem, class UseItem>
ADA_HOST_DEVICE inline void ForEvery(std::int64_t begin, std::int64_t end, std::int64_t step,
                                     LoadItem&& load, UseItem&& use) {
  for (std::int64_t i = begin; i < end; i += kAhead * step) {
    decltype(load(i)) items[kAhead];
    for (int k = 0; k < kAhead; ++k) {
      const std::int64_t at = i + k * step;
      items[k] = load(at < end ? at : i);
    }
    for (int k = 0; k < kAhead; ++k)
      if (i + k * step < end) use(i + k * step, items[k]);
  }
}

}  // namespace ada::backend::cuda
