// Quantizes tensors to block-scaled formats: the scalar definition, with which every vectorized
// kernel must agree bit for bit.
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "number/blocks/block_counts.h"
#include "number/blocks/block_rules_inline.h"
#include "number/random.h"

namespace ada {

// Matrices in memory, all of one shape; blocks run along their lines: value (m, r, i) is at m *
// matrix_stride + r * row_stride + i * stride. The last block of a line may be shorter. A square
// block also spans rows r; otherwise each row has its own blocks. A layout has strides but no
// pointer, so that one layout serves input and results.
struct BlockLayout {
  std::int64_t matrices = 1, rows = 1, length = 0;
  std::int64_t matrix_stride = 0, row_stride = 0, stride = 1;

  std::int64_t blocks_per_row(const BlockFormat& format) const;
  std::int64_t block_rows(const BlockFormat& format) const;  // of one matrix
  std::int64_t blocks(const BlockFormat& format) const;      // of all matrices
};

// Returns the layout of a tensor of `shape` (row-major, contiguous) whose blocks run along `axis`.
// The rows of a square block are all axes before it, flattened; for axis 0 they are axis 1. Each
// position on the other axes is a separate matrix. A scalar is a tensor of one value.
BlockLayout BlockLayoutOf(const std::vector<std::int64_t>& shape, std::size_t axis, bool square);

// --- Going through a layout ---

// The part of a matrix that shares a scale.
struct BlockTile {
  std::int64_t begin, rows, columns;  // begin: of its first value
  std::int64_t line;                  // of its first row, [matrices, rows]
};
// body(tile) for each block, in the order of stored scales.
template <class Body>
void ForTiles(const BlockLayout& layout, const BlockFormat& format, Body&& body) {
  const std::int64_t tall = format.square ? format.block : 1;
  for (std::int64_t m = 0; m < layout.matrices; ++m)
    for (std::int64_t row = 0; row < layout.rows; row += tall)
      for (std::int64_t i = 0; i < layout.length; i += format.block)
        body(BlockTile{m * layout.matrix_stride + row * layout.row_stride + i * layout.stride,
                       std::min(tall, layout.rows - row),
                       std::min<std::int64_t>(format.block, layout.length - i),
                       m * layout.rows + row});
}
// body(place) for each value of a block, row by row.
template <class Body>
void ForPlaces(const BlockLayout& layout, const BlockTile& tile, Body&& body) {
  for (std::int64_t row = 0; row < tile.rows; ++row) {
    const std::int64_t line = tile.begin + row * layout.row_stride;
    for (std::int64_t i = 0; i < tile.columns; ++i) body(line + i * layout.stride);
  }
}

// --- Quantizing ---

// The largest magnitude, including inf; NaN if any value is NaN; 0 without values.
float AmaxOf(std::span<const float> values);

// The largest magnitude of each line, [matrices, rows], from which the scales of a row_scaled
// format are computed.
std::vector<float> RowAmaxesOf(const BlockLayout& layout, const float* values);

// The random words of a stochastic rounding: word i is word i % 4 of Philox(key, draw, i / 4).
struct RoundingWords {
  std::uint64_t key = 0, draw = 0;
  std::uint64_t first = 0;  // the word of the first value
  std::uint32_t At(std::uint64_t i) const {
    return Philox(key, draw, (first + i) / 4)[(first + i) % 4];
  }
};

// Where to put results; null: not wanted.
struct QuantizedBlocks {
  float* values = nullptr;        // decoded, in the layout of the input (may be the input)
  std::uint8_t* codes = nullptr;  // of elements, one a byte, in the layout of the input
  float* scales = nullptr;        // as stored, [matrices, block_rows, blocks_per_row]
  // HiFloat4: bit 0 where a value's eight are doubled, bit 1 where its four are; as `codes`.
  std::uint8_t* doubled = nullptr;
  // If set, elements are rounded stochastically: value i of the input by random word i of (key,
  // draw). Not for kFourOverSix and kHiFloat4.
  std::optional<RoundingWords> words = {};
};

// Quantizes to `format`. `tensor_amax`: of the whole tensor, read if the format has a tensor scale;
// a row_scaled format uses those of the lines instead. `bf16_input`: see BlockGridOf. `counts`, if
// not null, gets the counts of all blocks.
void QuantizeBlocks(const BlockFormat& format, const BlockLayout& layout, float tensor_amax,
                    bool bf16_input, const float* input, const QuantizedBlocks& output,
                    BlockCounts* counts);
// The same for a row_scaled format if lines are parts of longer rows, whose largest magnitudes are
// `row_amaxes` (see RowAmaxesOf).
void QuantizeRows(const BlockFormat& format, const BlockLayout& layout,
                  std::span<const float> row_amaxes, bool bf16_input, const float* input,
                  const QuantizedBlocks& output, BlockCounts* counts);

}  // namespace ada
