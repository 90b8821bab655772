// V of a batch's tiles. Tiles side by side share two of their four columns, which stay in
// registers.
#include <algorithm>

#include "backend/cpu/kernels/winograd/transforms.h"

namespace ada::backend::cpu::ADA_ISA {
namespace {

// A column of four inputs, transformed along the column.
template <class Mode>
ADA_INLINE void InputColumn(const Pixels<Mode>& pixels, int y, int x, F (&column)[kSide]) {
  TransformInputs(pixels.At(y, x), pixels.At(y + 1, x), pixels.At(y + 2, x), pixels.At(y + 3, x),
                  column);
}

// 16 channels of the tiles of a run, to `v` of its first tile.
template <class Mode>
ADA_OUTLINE void InputRun(const WinogradInputArgs& a, const WinogradRun& run, int channel, float* v,
                          std::int64_t place) {
  const Pixels<Mode> pixels{a.x, run.image * a.x.image_values() + channel, a.x.c - channel};
  const int y = 2 * run.row - a.top, x = 2 * run.column - a.left;
  F columns[kSide][kSide];
  InputColumn(pixels, y, x, columns[0]);
  InputColumn(pixels, y, x + 1, columns[1]);
  for (int t = 0; t < run.count; ++t, v += 16) {
    InputColumn(pixels, y, x + 2 * t + 2, columns[2]);
    InputColumn(pixels, y, x + 2 * t + 3, columns[3]);
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
    // Rows of products are made some at a time.
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
