// Depthwise convolutions, a row of the output at a time; products/depthwise.h says what is
// computed. Sums of a few columns and 16 channels stay in registers while all taps pass.
#include "backend/cpu/products/depthwise.h"

#include "backend/cpu/kernels/direct/sums.h"

namespace ada::backend::cpu::ADA_ISA {
namespace {

constexpr int kRecord = 16;
// Columns, and taps of a gradient, whose sums fit in the registers with one factor.
#ifdef __AVX512F__
constexpr int kAtOnce = 8;
#else
constexpr int kAtOnce = 6;
#endif

ADA_INLINE int WholeRecords(int channels) { return (channels + kRecord - 1) / kRecord * kRecord; }

ADA_INLINE F MultiplyAddLanes(F a, F b, F sum) {
#ifdef __AVX512F__
  return FusedMultiplyAdd(a, b, sum);
#else
  return {FusedMultiplyAdd(a.low, b.low, sum.low), FusedMultiplyAdd(a.high, b.high, sum.high)};
#endif
}

template <class Mode>
class Row {
 public:
  ADA_INLINE explicit Row(const DepthwiseRowArgs& a)
      : a_(a),
        step_(std::int64_t{a.in_step} * WholeRecords(a.channels)),
        out_(a.out, a.factor, a.bias) {}

  ADA_INLINE void Run() {
    for (int c = 0; c < a_.channels; c += kRecord) {
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
    for (int t = 0; t < a_.tap_count; ++t) {
      const float* in = a_.taps[t].in + column * step_ + c;
      const F weight = LoadF(a_.taps[t].weight + c);
#pragma GCC unroll 8
      for (int k = 0; k < kColumns; ++k)
        sums[k] = MultiplyAddLanes(weight, LoadF(in + k * step_), sums[k]);
    }
#pragma GCC unroll 8
    for (int k = 0; k < kColumns; ++k)
      out_.Store(std::int64_t{column + k} * a_.out_step * a_.channels + c, c, a_.channels - c,
                 sums[k]);
  }

  const DepthwiseRowArgs& a_;
  const std::int64_t step_;
  SumsOut<Mode> out_;
};

// Sums of kTaps taps for 16 channels.
template <int kTaps>
ADA_INLINE void GradientBlock(const DepthwiseGradientArgs& a, int first, int c) {
  const int width = WholeRecords(a.channels);
  const std::int64_t step = std::int64_t{a.in_step} * width;
  float* gradients = a.gradients + std::int64_t{first} * width + c;
  F sums[kTaps];
  const float* in[kTaps];
#pragma GCC unroll 8
  for (int t = 0; t < kTaps; ++t)
    sums[t] = LoadF(gradients + std::int64_t{t} * width), in[t] = a.taps[first + t].in + c;
  for (int column = 0; column < a.columns; ++column) {
    const F dy = LoadF(a.dy + std::int64_t{column} * width + c);
#pragma GCC unroll 8
    for (int t = 0; t < kTaps; ++t)
      sums[t] = MultiplyAddLanes(dy, LoadF(in[t] + column * step), sums[t]);
  }
#pragma GCC unroll 8
  for (int t = 0; t < kTaps; ++t) StoreF(gradients + std::int64_t{t} * width, sums[t]);
}

template <class Mode>
void Widen(const DepthwiseWidenArgs& a) {
  const int width = WholeRecords(a.channels);
  std::int64_t from = a.first;
  float* to = a.out;
  for (int pixel = 0; pixel < a.pixels; ++pixel, from += a.channels, to += width) {
    int c = 0;
    for (; c + kRecord <= a.channels; c += kRecord) StoreF(to + c, Mode::Load(a.in, from + c));
    if (c < a.channels) StoreF(to + c, Mode::LoadFirst(a.in, from + c, a.channels - c));
  }
}

}  // namespace

void DepthwiseRow(const DepthwiseRowArgs& a) {
  switch (a.out.storage) {
    case Storage::kF16:
      return Row<ModeF16>(a).Run();
    case Storage::kBF16:
      return Row<ModeBF16>(a).Run();
    default:
      return Row<ModeF32>(a).Run();
  }
}

void DepthwiseGradient(const DepthwiseGradientArgs& a) {
  for (int c = 0; c < a.channels; c += kRecord) {
    int t = 0;
    for (; t + kAtOnce <= a.tap_count; t += kAtOnce) GradientBlock<kAtOnce>(a, t, c);
    for (; t + 3 <= a.tap_count; t += 3) GradientBlock<3>(a, t, c);
    for (; t < a.tap_count; ++t) GradientBlock<1>(a, t, c);
    if (a.bias == nullptr) continue;
    F sum = LoadF(a.bias + c);
    for (int column = 0; column < a.columns; ++column)
      sum += LoadF(a.dy + std::int64_t{column} * WholeRecords(a.channels) + c);
    StoreF(a.bias + c, sum);
  }
}

void WidenPixels(const DepthwiseWidenArgs& a) {
  switch (a.in.storage) {
    case Storage::kF16:
      return Widen<ModeF16>(a);
    case Storage::kBF16:
      return Widen<ModeBF16>(a);
    default:
      return Widen<ModeF32>(a);
  }
}

}  // namespace ada::backend::cpu::ADA_ISA
