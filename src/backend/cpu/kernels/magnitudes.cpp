// Kernels that read only magnitudes: exponents, extremes of channels, the largest gradient, and the
// sanitizing of gradients that are not finite.
#include "backend/cpu/kernels/bins.h"
#include "backend/cpu/kernels/columns.h"
#include "backend/cpu/kernels/functions.h"

namespace ada::backend::cpu::ADA_ISA {
namespace {

// Bins the lanes whose bit is set.
ADA_INLINE void CountTail(U magnitude, unsigned bits, TailCounts& counts) {
  alignas(64) std::uint32_t lanes[kLanes];
  std::memcpy(lanes, &magnitude, sizeof lanes);
  for (; bits != 0; bits &= bits - 1) ++counts.bins[lanes[__builtin_ctz(bits)] >> 23];
}

}  // namespace

// Few values lie below the limit: lanes are looked at only where one does.
void ExponentTail(const float* x, std::int64_t n, int limit, TailCounts& counts) {
  const std::uint32_t end = limit > 0 ? (static_cast<std::uint32_t>(limit) << 23) - 1 : 0;
  const TensorSpan in{const_cast<float*>(x), Storage::kF32};
  U max{};
  I zeros{};
  const auto look = [&](U u) __attribute__((always_inline)) {
    max = MaxBits(max, u);
    zeros -= (I)u == 0;
    // A zero minus 1 is far above every limit.
    const unsigned below = LaneBits(Less(u - 1u, FillU(end)));
    if (below != 0) CountTail(u, below, counts);
  };
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) look(Magnitude(LoadF(x + i)));
  std::int64_t seen = i;  // with the zeros that fill up the last vector
  if (i < n) {
    look(Magnitude(ModeF32::LoadFirst(in, i, static_cast<int>(n - i))));
    seen += kLanes;
  }
  counts.nonzero += seen;
  for (int k = 0; k < kLanes; ++k) counts.nonzero -= zeros[k];
  const std::uint32_t largest = LargestOf(max);
  counts.max_bits = largest > counts.max_bits ? largest : counts.max_bits;
}

// u - 1 makes a zero the largest number, so that the minimum passes over it.
void ChannelMagnitudes(TensorSpan in, std::int64_t pixels, std::int64_t channels,
                       std::uint32_t* min_bits, std::uint32_t* max_bits) {
  // Bits travel as fp32 lanes: loads and stores copy them as they are.
  float *min_at = reinterpret_cast<float*>(min_bits), *max_at = reinterpret_cast<float*>(max_bits);
  Dispatch({in}, [&](auto mode) {
    using Mode = decltype(mode);
    ForChannels(
        channels, [&](std::int64_t c, int lanes, auto tail) __attribute__((always_inline)) {
          constexpr bool kTail = decltype(tail)::value;
          U min = Bits(Parameter<kTail>(min_at, c, lanes));
          U max = Bits(Parameter<kTail>(max_at, c, lanes));
          for (std::int64_t p = 0; p < pixels; ++p) {
            const U u = Magnitude(LoadAt<Mode, kTail>(in, p * channels + c, lanes));
            min = MinBits(min, u - 1u);
            max = MaxBits(max, u);
          }
          SetParameter<kTail>(min_at, c, lanes, Float(min));
          SetParameter<kTail>(max_at, c, lanes, Float(max));
        });
  });
}

// In any storage the largest bit pattern is NaN, so that one NaN is never missed.
std::uint32_t Largest(const float* x, std::int64_t n) {
  const TensorSpan in{const_cast<float*>(x), Storage::kF32};
  U max{};
  ForValues(
      n, [&](std::int64_t i, int lanes, auto tail) __attribute__((always_inline)) {
        max = MaxBits(max, Magnitude(LoadAt<ModeF32, decltype(tail)::value>(in, i, lanes)));
      });
  return LargestOf(max);
}

// Codes without their signs are ordered like the magnitudes that they represent.
std::uint32_t LargestStored(TensorSpan x, std::int64_t n) {
  if (x.storage == Storage::kF32) return Largest(static_cast<const float*>(x.data), n);
  const auto* codes = static_cast<const std::uint16_t*>(x.data);
  H max[2]{};
  std::int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes)
    for (int k = 0; k < 2; ++k) max[k] = MaxCode(max[k], LoadH(codes + i + k * kLanes) & 0x7fff);
  for (; i < n; i += kLanes) {
    const auto lanes = static_cast<int>(std::min<std::int64_t>(kLanes, n - i));
    max[0] = MaxCode(max[0], LoadFirstH(codes + i, lanes) & 0x7fff);
  }
  const H all = MaxCode(max[0], max[1]);
  return LargestOf(Bits(x.storage == Storage::kF16 ? FromFp16(all) : FromBf16(all)));
}

void Sanitize(float* x, std::int64_t n, float limit) {
  const TensorSpan values{x, Storage::kF32};
  const std::uint32_t most = BitsOf(limit);
  ForValues(
      n, [&](std::int64_t i, int lanes, auto tail) __attribute__((always_inline)) {
        constexpr bool kTail = decltype(tail)::value;
        const F v = LoadAt<ModeF32, kTail>(values, i, lanes);
        const U u = Magnitude(v), clipped = MinBits(u, FillU(most)) | (Bits(v) & 0x80000000u);
        const I number = (I)u <= (I)FillU(0x7f800000u);
        StoreAt<ModeF32, kTail>(values, i, lanes, Float(clipped & (U)number));
      });
}

}  // namespace ada::backend::cpu::ADA_ISA
