// The loop over channels, 16 at a time, and the parameters that belong to them.
#pragma once
#include "backend/cpu/kernels/flat.h"

namespace ada::backend::cpu::ADA_ISA {

// Columns that loops walk down at a time: two of 16 bits fill a line of the cache, which would
// otherwise come twice.
template <class Mode>
inline constexpr int kColumnsAtOnce =
#ifdef __AVX512F__
    Mode::kRounding == ModeRounding::kCodes ? 4 : 1;
#else
    1;
#endif

// body(c, lanes, tail, columns) for each group of `columns` columns of 16 channels: kMost where
// there are as many, else one.
// The last group may be partial: `tail` is then std::true_type, and `lanes` below 16.
template <int kMost, class Body>
ADA_INLINE void ForColumns(std::int64_t channels, Body&& body) {
  std::int64_t c = 0;
  if constexpr (kMost > 1)
    for (; c + kMost * kLanes <= channels; c += kMost * kLanes)
      body(c, kLanes, std::false_type{}, std::integral_constant<int, kMost>{});
  if constexpr (kMost > 2)
    for (; c + 2 * kLanes <= channels; c += 2 * kLanes)
      body(c, kLanes, std::false_type{}, std::integral_constant<int, 2>{});
  constexpr std::integral_constant<int, 1> one;
  for (; c + kLanes <= channels; c += kLanes) body(c, kLanes, std::false_type{}, one);
  if (c < channels) body(c, static_cast<int>(channels - c), std::true_type{}, one);
}
// body(c, lanes, tail) for each group of 16 channels.
template <class Body>
ADA_INLINE void ForChannels(std::int64_t channels, Body&& body) {
  std::int64_t c = 0;
  for (; c + kLanes <= channels; c += kLanes) body(c, kLanes, std::false_type{});
  if (c < channels) body(c, static_cast<int>(channels - c), std::true_type{});
}
// A vector of parameters by channel, always fp32.
template <bool kTail>
ADA_INLINE F Parameter(const float* p, std::int64_t c, int lanes) {
  return LoadAt<ModeF32, kTail>(TensorSpan{const_cast<float*>(p), Storage::kF32}, c, lanes);
}
// Those of some columns.
template <int kColumns, bool kTail>
struct Parameters {
  ADA_INLINE Parameters(const float* p, std::int64_t c, int lanes) {
    for (int k = 0; k < kColumns; ++k) v[k] = Parameter<kTail>(p, c + k * kLanes, lanes);
  }
  ADA_INLINE F operator[](int k) const { return v[k]; }
  F v[kColumns];
};
// Writes only lanes that are channels.
template <bool kTail>
ADA_INLINE void SetParameter(float* p, std::int64_t c, int lanes, F v) {
  StoreAt<ModeF32, kTail>(TensorSpan{p, Storage::kF32}, c, lanes, v);
}

}  // namespace ada::backend::cpu::ADA_ISA
