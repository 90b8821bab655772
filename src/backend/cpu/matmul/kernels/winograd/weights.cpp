// U from weights, and dw from sums of products: between PyTorch's order and places, 16 output
// channels in lanes.
#include "backend/cpu/matmul/kernels/winograd/transforms.h"

namespace ada::backend::cpu::ADA_ISA {
namespace {

constexpr int kSideTaps = 3;  // of the kernel

}  // namespace

// Weights that do not exist are zeros in all nine taps, and so decline nothing.
bool WinogradWeights(const WinogradWeightsArgs& a) {
  const int ins = (a.ins + 15) / 16 * 16;
  const std::int64_t place = std::int64_t{16} * ins;
  I partly_zero{};
  for (int i = 0; i < ins; ++i) {
    alignas(64) float taps[kTaps][16] = {};
    if (i < a.ins)
      for (int o = 0; o < a.outs; ++o) {
        const float* from = a.plain + o * a.out_step + i * a.in_step;
        for (int t = 0; t < kTaps; ++t) taps[a.turned ? kTaps - 1 - t : t][o] = from[t];
      }
    I any_zero{}, any_other{};
    for (int t = 0; t < kTaps; ++t) {
      const I zero = LoadF(taps[t]) == F{};
      any_zero |= zero, any_other |= zero == I{};
    }
    partly_zero |= any_zero & any_other;
    F columns[kSideTaps][kSide], places[kWinogradPlaces];
#pragma GCC unroll 3
    for (int x = 0; x < kSideTaps; ++x)
      TransformWeights(LoadF(taps[x]), LoadF(taps[kSideTaps + x]), LoadF(taps[2 * kSideTaps + x]),
                       columns[x]);
#pragma GCC unroll 4
    for (int row = 0; row < kSide; ++row)
      TransformWeights(columns[0][row], columns[1][row], columns[2][row], places + kSide * row);
    StorePlaces(places, a.u + std::int64_t{16} * i, place);
  }
  return LargestOf((U)partly_zero) == 0;
}

void WinogradPlain(const WinogradPlainArgs& a) {
  const std::int64_t place = std::int64_t{16} * ((a.ins + 15) / 16 * 16);
  for (int i = 0; i < a.ins; ++i) {
    const float* from = a.partial + std::int64_t{16} * i;
    F columns[kSide][kSideTaps];
#pragma GCC unroll 4
    for (int x = 0; x < kSide; ++x) {
      const float* at = from + x * place;
      TransformProducts(LoadF(at), LoadF(at + kSide * place), LoadF(at + 2 * kSide * place),
                        LoadF(at + 3 * kSide * place), columns[x]);
    }
    alignas(64) float taps[kTaps][16];
#pragma GCC unroll 3
    for (int row = 0; row < kSideTaps; ++row) {
      F values[kSideTaps];
      TransformProducts(columns[0][row], columns[1][row], columns[2][row], columns[3][row], values);
      for (int x = 0; x < kSideTaps; ++x) StoreF(taps[kSideTaps * row + x], values[x]);
    }
    for (int o = 0; o < a.outs; ++o) {
      float* to = a.dw + (std::int64_t{o} * a.ins + i) * kTaps;
      for (int t = 0; t < kTaps; ++t) to[t] = taps[t][o];
    }
  }
}

}  // namespace ada::backend::cpu::ADA_ISA
