// The loop over channels, 16 at a time, and the parameters that belong to them.
#pragma once
#include "backend/cpu/kernels/flat.h"

namespace ada::backend::cpu::ADA_ISA {

// body(c, lanes, tail) for each group of 16 channels.
template <class Body>
ADA_INLINE void ForChannels(std::int64_t channels, Body&& body) {
  std::int64_t c = 0;
  for (; c + kLanes <= channels; c += kLanes) body(c, kLanes, std::false_type{});
  if (c < channels) body(c, static_cast<int>(channels - c), std::true_type{});
}
template <bool kTail>
ADA_INLINE F Parameter(const float* p, std::int64_t c, int lanes) {
  return LoadAt<ModeF32, kTail>(Piece{const_cast<float*>(p), Storage::kF32}, c, lanes);
}
template <bool kTail>
ADA_INLINE void SetParameter(float* p, std::int64_t c, int lanes, F v) {
  StoreAt<ModeF32, kTail>(Piece{p, Storage::kF32}, c, lanes, v);
}

}  // namespace ada::backend::cpu::ADA_ISA
