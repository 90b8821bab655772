// Where the values of a block lie in an operand, for kernels: numbers of 32 bits, which a device
// divides faster. A tensor of which blocks are made has fewer values than 2^32.
#pragma once
#include <cstdint>

#include "number/host_device.h"

namespace ada::backend::cuda {

// A run of values of one block, in the order in which they are added up; value k lies at
// Place(column of k) of its row.
struct BlockRun {
  std::uint32_t tile = 0, part = 0;  // the block, and which of its runs
  std::uint32_t row = 0, column = 0, values = 0;
};

// A block: `rows` x `columns` values.
struct BlockTile {
  std::uint32_t row = 0, line = 0, first = 0;  // its first value is value `first` of that line
  std::uint32_t rows = 0, columns = 0;
};

// An operand of `rows` rows (backend/operand_rows.h), cut into blocks of tall x wide values, tall
// no more than a group is. A row is `lines` lines of `length` values.
// Blocks are numbered by row of blocks, line, and place in the line; rows of blocks do not cross
// groups. All functions are pure arithmetic, the same on host and device.
struct BlockTiles {
  std::uint32_t rows = 0, width = 1;
  std::uint32_t group = 1;  // rows that share no block with others
  std::uint32_t tall = 1, wide = 1;
  std::uint32_t lines = 1, length = 1;
  std::uint32_t stride = 1;  // of a line's values; 1: lines lie one after the other
  // Columns are numbered in PyTorch's order, pixels of a channel side by side, and lie channel by
  // channel; 0: they lie as they are numbered.
  std::uint32_t pixels = 0, channels = 0;
  bool down = false;  // blocks run down the rows (OperandRows::down)

  ADA_HOST_DEVICE std::uint32_t per_line() const { return Quotient(length, wide); }
  ADA_HOST_DEVICE std::uint32_t tiles_of_group() const { return Quotient(group, tall); }
  ADA_HOST_DEVICE std::uint32_t tiles() const {
    return rows / group * tiles_of_group() * lines * per_line();
  }
  // A block one value wide is one run down its rows, another one has a run in each row.
  ADA_HOST_DEVICE bool runs_down() const { return wide == 1; }
  ADA_HOST_DEVICE std::uint32_t runs_of_tile() const { return runs_down() ? 1 : tall; }
  ADA_HOST_DEVICE std::uint32_t runs() const {
    return runs_down() ? tiles() : rows * lines * per_line();
  }

  ADA_HOST_DEVICE std::uint32_t ColumnOf(std::uint32_t line, std::uint32_t i) const {
    return stride == 1 ? line * length + i : line + i * stride;
  }
  // The index of a value, and the inverse: the column of the value at `at` of its row.
  ADA_HOST_DEVICE std::uint32_t Place(std::uint32_t row, std::uint32_t column) const {
    if (pixels != 0) column = column % pixels * channels + column / pixels;
    return row * width + column;
  }
  ADA_HOST_DEVICE std::uint32_t ColumnAt(std::uint32_t at) const {
    return pixels == 0 ? at : at % channels * pixels + at / channels;
  }

  ADA_HOST_DEVICE std::uint32_t TileRowOf(std::uint32_t row) const {
    const std::uint32_t of = row / group;
    return of * tiles_of_group() + (row - of * group) / tall;
  }
  // The number of the block of a value.
  // Used value by value; RunAt and TileAt go the other way.
  ADA_HOST_DEVICE std::uint32_t TileOf(std::uint32_t row, std::uint32_t column) const {
    const std::uint32_t line = stride == 1 ? column / length : column % stride;
    const std::uint32_t i = stride == 1 ? column - line * length : column / stride;
    return (TileRowOf(row) * lines + line) * per_line() + i / wide;
  }
  // Rows of a format that has a scale of each row (BlockFormat::row_scaled): all blocks of a line,
  // which are one after the other, or of those that run down, one below the other.
  ADA_HOST_DEVICE std::uint32_t scale_rows() const {
    return down ? rows / group * lines : rows * lines;
  }
  ADA_HOST_DEVICE std::uint32_t ScaleRowOf(std::uint32_t tile) const {
    if (!down) return tile / per_line();
    return tile / lines / tiles_of_group() * lines + tile % lines;
  }
  ADA_HOST_DEVICE std::uint32_t tiles_of_scale_row() const {
    return down ? tiles_of_group() : per_line();
  }
  ADA_HOST_DEVICE std::uint32_t TileOfScaleRow(std::uint32_t row, std::uint32_t i) const {
    return down ? (row / lines * tiles_of_group() + i) * lines + row % lines : row * per_line() + i;
  }

  ADA_HOST_DEVICE BlockTile TileAt(std::uint32_t tile_row, std::uint32_t line,
                                   std::uint32_t i) const {
    const std::uint32_t of = tile_row / tiles_of_group();
    const std::uint32_t within = (tile_row - of * tiles_of_group()) * tall;
    return {of * group + within, line, i * wide, Least(tall, group - within),
            Least(wide, length - i * wide)};
  }
  ADA_HOST_DEVICE BlockTile TileAt(std::uint32_t tile) const {
    const std::uint32_t i = tile % per_line(), rest = tile / per_line();
    return TileAt(rest / lines, rest % lines, i);
  }
  // Run `number` of all, in an order in which neighbors lie side by side in memory.
  ADA_HOST_DEVICE BlockRun RunAt(std::uint32_t number) const {
    if (runs_down()) {
      const BlockTile tile = TileAt(number);
      return {number, 0, tile.row, ColumnOf(tile.line, tile.first), tile.rows};
    }
    const std::uint32_t of_row = lines * per_line();
    const std::uint32_t row = number / of_row, rest = number - row * of_row;
    const std::uint32_t line = stride == 1 ? rest / per_line() : rest % lines;
    const std::uint32_t i = stride == 1 ? rest - line * per_line() : rest / lines;
    const std::uint32_t tile_row = TileRowOf(row);
    const BlockTile tile = TileAt(tile_row, line, i);
    return {(tile_row * lines + line) * per_line() + i, row - tile.row, row,
            ColumnOf(line, tile.first), tile.columns};
  }
  ADA_HOST_DEVICE std::uint32_t PlaceIn(const BlockRun& run, std::uint32_t k) const {
    return runs_down() ? Place(run.row + k, run.column) : Place(run.row, run.column + k * stride);
  }

  ADA_HOST_DEVICE static std::uint32_t Quotient(std::uint32_t a, std::uint32_t b) {
    return a / b + (a % b != 0 ? 1 : 0);
  }
  ADA_HOST_DEVICE static std::uint32_t Least(std::uint32_t a, std::uint32_t b) {
    return a < b ? a : b;
  }
};

}  // namespace ada::backend::cuda
