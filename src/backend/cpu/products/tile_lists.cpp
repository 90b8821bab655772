// Which tiles a call of a tile convolution has, and which steps they take; see tile_convolution.h.
#include "backend/cpu/context.h"
#include "backend/cpu/products/tile_convolution.h"
#include "core/error.h"

namespace ada::backend::cpu {

std::vector<TileOfRows> TileConvolution::TilesOf(const Part& part, int images) const {
  std::vector<TileOfRows> tiles;
  const int together = frame_.together, columns = 16 / together;
  for (int first = 0; first < images; first += together) {
    const std::int64_t group = first / together * frame_.group_bytes();
    for (int y = 0; y < part.rows; ++y) {
      for (int x = 0; x < part.columns; x += columns) {
        TileOfRows tile;
        tile.record = group + y * row_step_ * frame_.line_bytes() +
                      std::int64_t{x} * together * frame_.row_bytes();
        const std::int64_t row = part.row + static_cast<std::int64_t>(y) * out_step_[0];
        const std::int64_t column = part.column + static_cast<std::int64_t>(x) * out_step_[1];
        tile.out = ((first * out_.h + row) * out_.w + column) * out_pixel_;
        tile.block = first / block_;
        for (int i = 0; i < 16; ++i)
          if (x + i / together < part.columns && first + i % together < images)
            tile.valid |= 1u << i;
        tiles.push_back(tile);
      }
    }
  }
  while (tiles.size() % 4 != 0) {  // computed and forgotten
    tiles.push_back(tiles.back());
    tiles.back().valid = 0;
  }
  return tiles;
}

// Taps of one block of channels follow one another: they read the same records, shifted.
std::vector<std::int64_t> TileConvolution::StepsOf(const Part& part, int images) const {
  const std::int64_t block_bytes = frame_.runs() ? 64 : PlaneBytes(images);
  std::vector<std::int64_t> steps;
  for (int block = 0; block < frame_.blocks; ++block)
    for (const Tap& tap : part.taps)
      steps.push_back(
          (static_cast<std::int64_t>(tap.remainder) * frame_.rows + tap.row) * frame_.line_bytes() +
          std::int64_t{tap.column} * frame_.together * frame_.row_bytes() + block * block_bytes);
  return steps;
}

void TileConvolution::Prepare(int images) {
  if (images > at_once_) PrepareSome(at_once_);
  PrepareSome(images > at_once_ ? (images - 1) % at_once_ + 1 : images);
}

void TileConvolution::PrepareSome(int images) {
  if (lists_.count(images) != 0) return;
  ADA_CHECK(block_ % frame_.together == 0);
  Lists& lists = lists_[images];
  for (const Part& part : parts_) {
    lists.tiles.push_back(TilesOf(part, images));
    lists.steps.push_back(StepsOf(part, images));
  }
}

}  // namespace ada::backend::cpu
