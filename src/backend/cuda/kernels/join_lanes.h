// Combines results of adjacent threads of a warp, without a barrier.
#pragma once
#include <cstdint>
#include <cstring>

#include "number/host_device.h"

namespace ada::backend::cuda {

// In lane 0 of kLanes threads of one warp: own(0), own(1), ... own(kLanes - 1), joined in this
// order; nothing in the others. All of them call it. On a device each calls own(lane) and they
// shuffle what they got; the host executor, whose threads run one after the other, computes all in
// lane 0. `own` is to read only what was written before this phase.
template <int kLanes, class Own, class Join>
ADA_HOST_DEVICE inline auto JoinLanes(int lane, Own&& own, Join&& join) {
  static_assert(kLanes <= 32 && 32 % kLanes == 0);
  auto all = own(lane);
#ifdef __CUDA_ARCH__
  static_assert(sizeof all % 4 == 0);
  constexpr int kWords = sizeof all / 4;
  const unsigned whole = kLanes == 32 ? 0xffffffffu : (1u << kLanes % 32) - 1;
  const unsigned group = whole << (threadIdx.x % 32 / kLanes * kLanes);
  std::uint32_t words[kWords];
  std::memcpy(words, &all, sizeof all);
#pragma unroll
  for (int k = 1; k < kLanes; ++k) {
    std::uint32_t got[kWords];
    for (int i = 0; i < kWords; ++i) got[i] = __shfl_sync(group, words[i], k, kLanes);
    auto other = all;
    std::memcpy(&other, got, sizeof other);
    if (lane == 0) all = join(all, other);
  }
#else
  if (lane == 0)
    for (int k = 1; k < kLanes; ++k) all = join(all, own(k));
#endif
  return all;
}

}  // namespace ada::backend::cuda
