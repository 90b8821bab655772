// V of a batch's tiles. Adjacent tiles share two of their four columns, which stay in registers.
#include <algorithm>

#include "backend/cpu/matmul/kernels/winograd/transforms.h"

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

}  // namespace

void WinogradInput(const WinogradInputArgs& a) {
  ForStorage(a.x.values.storage, [&](auto mode) { InputBatch<decltype(mode)>(a); });
}

}  // namespace ada::backend::cpu::ADA_ISA
