// V of a batch's tiles, whose neighbors share two of their four columns, which stay in registers; U
// from weights, and dw from sums of products: between PyTorch's order and places, 16 output
// channels in lanes.
#include "backend/cpu/matmul/kernels/winograd/transforms.h"

#include <algorithm>

namespace ada::backend::cpu::ADA_ISA {
namespace {

// A column of four inputs, transformed along the column.
template <bool kWithin, class Mode>
ADA_INLINE void InputColumn(const PixelRows<Mode, kSide>& rows, int x, F (&column)[kSide]) {
  F d[kSide];
  rows.template Load<kWithin>(x, d);
  TransformInputs(d[0], d[1], d[2], d[3], column);
}

// 16 channels of the tiles of a run, to `v` of its first tile.
template <class Mode>
ADA_OUTLINE void InputRun(const WinogradInputArgs& a, const WinogradRun& run, int channel, float* v,
                          std::int64_t place) {
  const PixelRows<Mode, kSide> rows(a.x, run.image, 2 * run.row - a.top, channel);
  int x = 2 * run.column - a.left;
  F columns[kSide][kSide];
  InputColumn<false>(rows, x, columns[0]);
  InputColumn<false>(rows, x + 1, columns[1]);
  for (int t = 0; t < run.count; ++t, x += 2, v += 16) {
    InputColumn<true>(rows, x + 2, columns[2]);
    InputColumn<true>(rows, x + 3, columns[3]);
    F places[kWinogradPlaces];
#pragma GCC unroll 4
    for (int row = 0; row < kSide; ++row)
      TransformInputs(columns[0][row], columns[1][row], columns[2][row], columns[3][row],
                      places + kSide * row);
    StorePlaces(places, v, place);
#pragma GCC unroll 4
    for (int row = 0; row < kSide; ++row)
      columns[0][row] = columns[2][row], columns[1][row] = columns[3][row];
  }
}

template <class Mode>
void InputBatch(const WinogradInputArgs& a) {
  const int blocks = (a.x.c + 15) / 16, room = a.batch.room;
  const std::int64_t place = WinogradBatch::PlaceValues(room, blocks);
  for (int block = 0; block < blocks; ++block) {
    float* v = a.v + std::int64_t{block} * room * 16;
    for (int r = 0; r < a.batch.run_count; ++r) {
      InputRun<Mode>(a, a.batch.runs[r], 16 * block, v, place);
      v += 16 * a.batch.runs[r].count;
    }
    // Rows of products are computed in groups.
    const int end = std::min(room, a.batch.tiles + kRowsOfOne - 1);
    constexpr F kZeros[kWinogradPlaces] = {};
    for (int t = a.batch.tiles; t < end; ++t, v += 16) StorePlaces(kZeros, v, place);
  }
}

constexpr int kSideTaps = 3;  // of the kernel

}  // namespace

void WinogradInput(const WinogradInputArgs& a) {
  ForStorage(a.x.values.storage, [&](auto mode) { InputBatch<decltype(mode)>(a); });
}

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
