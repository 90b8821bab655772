// Kernels that read only magnitudes: exponents, extremes of channels, the largest gradient, and the
// sanitizing of gradients that are not finite.
#include <algorithm>

#include "backend/cpu/kernels/bins.h"
#include "backend/cpu/kernels/columns.h"
#include "backend/cpu/kernels/count_lanes.h"
#include "backend/cpu/kernels/functions.h"

namespace ada::backend::cpu::ADA_ISA {
namespace {

constexpr int kTallied = 16 * BinTally::kRun;  // values that are tallied at once

// Tallies n values, a multiple of 16 and at most kTallied.
ADA_INLINE void TallyPiece(const float* x, int n, BinTally& tally, TailCounts& counts) {
  std::uint32_t smallest[kTallied / BinTally::kRun];
  ExtremeLanes extremes;
  for (int first = 0, run = 0; first < n; first += BinTally::kRun, ++run) {
    extremes.min = Ints{} + 0x7fffffff;
    const int end = std::min(first + BinTally::kRun, n);
    for (int i = first; i < end; i += kWidth) extremes.Add(Magnitudes(x + i));
    smallest[run] = static_cast<std::uint32_t>(Smallest(extremes.min));
  }
  const auto largest = static_cast<std::uint32_t>(-Smallest(-extremes.max));
  tally.Add(x, n, smallest, largest);
  counts.max_bits = std::max(counts.max_bits, largest);
}

}  // namespace

void ExponentTail(const float* x, std::int64_t n, TailCounts& counts) {
  BlockBins bins;
  Rounding rounding;
  rounding.bins = &bins;
  BinTally tally(rounding);
  for (std::int64_t i = 0; i < n; i += kTallied) {
    const int piece = static_cast<int>(std::min<std::int64_t>(kTallied, n - i));
    if (piece % kLanes == 0) {
      TallyPiece(x + i, piece, tally, counts);
      continue;
    }
    alignas(64) float filled[kTallied] = {};  // zeros fill the last vector up
    std::memcpy(filled, x + i, sizeof(float) * static_cast<std::size_t>(piece));
    TallyPiece(filled, (piece + 15) / 16 * 16, tally, counts);
  }
  tally.Finish(n);
  counts.nonzero += n - bins.zeros;
  constexpr int kBias = 127;  // of fp32's exponent field; subnormals have the field 0
  for (int k = 0; k < BlockBins::kExponents; ++k)
    if (bins.counts[k] != 0)
      counts.bins[std::max(k + BlockBins::kLowest + kBias, 0)] += bins.counts[k];
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

// Less 1, a zero is the largest number of all: the minimum passes over it.
std::uint32_t SmallestStored(TensorSpan x, std::int64_t n) {
  std::uint32_t lanes[kLanes], least = 0xffffffffu;
  if (x.storage == Storage::kF32) {
    U min = U{} - 1u;
    ForValues(
        n, [&](std::int64_t i, int count, auto tail) __attribute__((always_inline)) {
          const F v = LoadAt<ModeF32, decltype(tail)::value>(x, i, count);
          min = MinBits(min, Magnitude(v) - 1u);
        });
    StoreParts(lanes, min);
    for (const std::uint32_t lane : lanes) least = std::min(least, lane);
    return least;
  }
  const auto* codes = static_cast<const std::uint16_t*>(x.data);
  const auto less_one = [](H code) __attribute__((always_inline)) {
    return (H)((code & 0x7fff) - 1);
  };
  H min[2] = {less_one(H{}), less_one(H{})};
  std::int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes)
    for (int k = 0; k < 2; ++k) min[k] = MinCode(min[k], less_one(LoadH(codes + i + k * kLanes)));
  for (; i < n; i += kLanes) {
    const auto count = static_cast<int>(std::min<std::int64_t>(kLanes, n - i));
    min[0] = MinCode(min[0], less_one(LoadFirstH(codes + i, count)));
  }
  std::uint16_t mins[kLanes], code = 0xffff;
  StoreH(mins, MinCode(min[0], min[1]));
  for (const std::uint16_t lane : mins) code = std::min(code, lane);
  if (code == 0xffff) return least;
  const H all = H{} + static_cast<std::uint16_t>(code + 1);
  return LargestOf(Bits(x.storage == Storage::kF16 ? FromFp16(all) : FromBf16(all))) - 1;
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
