// Convolutions with few channels per group, one row of the output at a time; what is computed is
// explained in matmul/kernels/depthwise.h. Sums of a few columns and 16 channels stay in registers
// for all taps.
#include "backend/cpu/matmul/kernels/depthwise.h"

#include "backend/cpu/matmul/kernels/direct/sums.h"

namespace ada::backend::cpu::ADA_ISA {
namespace {

constexpr int kPixelChannels = 16;
// Columns, and taps of a gradient, whose sums fit in the registers with one factor.
#ifdef __AVX512F__
constexpr int kAtOnce = 8;
#else
constexpr int kAtOnce = 6;
#endif

// x[lane number `from` says]; of sets of 8 lanes within each half.
ADA_INLINE F Shuffle(F x, U from) {
#ifdef __AVX512F__
  return (F)_mm512_permutexvar_ps((__m512i)from, (__m512)x);
#else
  return {(Floats)_mm256_permutevar8x32_ps((__m256)x.low, (__m256i)from.low),
          (Floats)_mm256_permutevar8x32_ps((__m256)x.high, (__m256i)from.high)};
#endif
}

ADA_INLINE F MultiplyAddLanes(F a, F b, F sum) {
#ifdef __AVX512F__
  return FusedMultiplyAdd(a, b, sum);
#else
  return {FusedMultiplyAdd(a.low, b.low, sum.low), FusedMultiplyAdd(a.high, b.high, sum.high)};
#endif
}

// Walks over blocks of 16 channels, and over columns some at a time.
template <class Mode>
class Row {
 public:
  ADA_INLINE explicit Row(const DepthwiseRowArgs& a)
      : a_(a), step_(std::int64_t{a.in_step} * kPixelChannels), out_(a.out, a.factor, a.bias) {}

  ADA_INLINE void Run() {
    for (int c = 0; c < a_.channels; c += kPixelChannels) {
      int column = 0;
      for (; column + kAtOnce <= a_.columns; column += kAtOnce) Block<kAtOnce>(column, c);
      for (; column < a_.columns; ++column) Block<1>(column, c);
    }
    out_.TakeLargest(a_.largest);
  }

 private:
  template <int kColumns>
  ADA_INLINE void Block(int column, int c) {
    F sums[kColumns];
#pragma GCC unroll 8
    for (int k = 0; k < kColumns; ++k) sums[k] = F{};
    const std::int64_t first = c / kPixelChannels * a_.in_block + column * step_;
    const std::int64_t weights = c / kPixelChannels * a_.weight_block;
    for (int t = 0; t < a_.tap_count; ++t) {
      const float* in = a_.taps[t].in + first;
      const F weight = LoadF(a_.taps[t].weight + weights);
#pragma GCC unroll 8
      for (int k = 0; k < kColumns; ++k)
        sums[k] = MultiplyAddLanes(weight, LoadF(in + k * step_), sums[k]);
    }
    U largest{};
    const std::int64_t to = column * a_.out_step + c;
    const int lanes = a_.channels - c;
#pragma GCC unroll 8
    for (int k = 0; k < kColumns; ++k)
      largest = out_.Store(to + k * a_.out_step, c, lanes, sums[k], largest);
    out_.Merge(largest);
  }

  const DepthwiseRowArgs& a_;
  const std::int64_t step_;
  SumsOut<Mode> out_;
};

// Sums of kTaps taps for 16 channels.
template <int kTaps>
ADA_INLINE void GradientBlock(const DepthwiseGradientArgs& a, int first, int c) {
  const std::int64_t step = std::int64_t{a.in_step} * kPixelChannels, block = c / kPixelChannels;
  const float* const rows = a.dy + block * a.columns * kPixelChannels;
  float* gradients = a.gradients + (block * a.tap_count + first) * kPixelChannels;
  F sums[kTaps];
  const float* in[kTaps];
#pragma GCC unroll 8
  for (int t = 0; t < kTaps; ++t)
    sums[t] = LoadF(gradients + t * kPixelChannels),
    in[t] = a.taps[first + t].in + block * a.in_block;
  for (int column = 0; column < a.columns; ++column) {
    const F dy = LoadF(rows + column * kPixelChannels);
#pragma GCC unroll 8
    for (int t = 0; t < kTaps; ++t)
      sums[t] = MultiplyAddLanes(dy, LoadF(in[t] + column * step), sums[t]);
  }
#pragma GCC unroll 8
  for (int t = 0; t < kTaps; ++t) StoreF(gradients + t * kPixelChannels, sums[t]);
}

// planes is 1, 2 or 4, so that groups never cross a half of the lanes.
template <class Mode>
void Widen(const DepthwiseWidenArgs& a) {
  const U group = (U)LaneNumbers() & ~static_cast<std::uint32_t>(a.planes - 1);
  std::int64_t from = a.first;
  float* to = a.out;
  for (int pixel = 0; pixel < a.pixels; ++pixel, from += a.channels, to += kPixelChannels) {
    float* block = to;
    for (int c = 0; c < a.channels; c += kPixelChannels, block += a.block) {
      const F x = a.channels - c >= kPixelChannels
                      ? Mode::Load(a.in, from + c)
                      : Mode::LoadFirst(a.in, from + c, a.channels - c);
      if (a.planes == 1) {
        StoreF(block, x);
        continue;
      }
      for (int k = 0; k < a.planes; ++k)
        StoreF(block + k * a.plane, Shuffle(x, group + static_cast<std::uint32_t>(k)));
    }
  }
}

}  // namespace

void DepthwiseRow(const DepthwiseRowArgs& a) {
  ForStorage(a.out.storage, [&](auto mode) { Row<decltype(mode)>(a).Run(); });
}

void DepthwiseGradient(const DepthwiseGradientArgs& a) {
  for (int c = 0; c < a.channels; c += kPixelChannels) {
    int t = 0;
    for (; t + kAtOnce <= a.tap_count; t += kAtOnce) GradientBlock<kAtOnce>(a, t, c);
    for (; t + 3 <= a.tap_count; t += 3) GradientBlock<3>(a, t, c);
    for (; t < a.tap_count; ++t) GradientBlock<1>(a, t, c);
    if (a.bias == nullptr) continue;
    F sum = LoadF(a.bias + c);
    const float* const rows = a.dy + std::int64_t{c} * a.columns;
    for (int column = 0; column < a.columns; ++column) sum += LoadF(rows + column * kPixelChannels);
    StoreF(a.bias + c, sum);
  }
}

void WidenPixels(const DepthwiseWidenArgs& a) {
  ForStorage(a.in.storage, [&](auto mode) { Widen<decltype(mode)>(a); });
}

}  // namespace ada::backend::cpu::ADA_ISA
