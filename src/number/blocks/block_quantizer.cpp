// Goes from tile to tile: gathers its values, finds the scale, rounds and decodes each value. Its
// loops are plain, without regard to speed, since other code is compared with them.
#include "number/blocks/block_quantizer.h"

#include <algorithm>
#include <cmath>

#include "number/blocks/block_choices_inline.h"

namespace ada {
namespace {

// The error of a tile under one scale.
float TileError(const BlockGrid& grid, const TensorFactor& tensor, const BlockFactor& factor,
                const BlockTile& tile, const std::vector<float>& values) {
  std::vector<float> rows;
  for (std::int64_t row = 0; row < tile.rows; ++row) {
    const float* from = values.data() + row * tile.columns;
    rows.push_back(FourOverSixRowError(grid, tensor, factor, tile.columns,
                                       [from](std::int64_t i) { return from[i]; }));
  }
  return JoinRowErrors(tile.rows, [&rows](std::int64_t row) -> float& {
    return rows[static_cast<std::size_t>(row)];
  });
}

// Only kFourOverSix looks at more than the largest magnitude. Where both errors are equal it takes
// six.
BlockFactor FactorOfTile(const BlockGrid& grid, const TensorFactor& tensor, const BlockTile& tile,
                         const std::vector<float>& values) {
  const float amax = AmaxOf(values);
  const BlockFactor factor = BlockFactorOf(grid, tensor, amax);
  if (grid.rule != BlockRule::kFourOverSix) return factor;
  const BlockFactor four = FourFactorOf(grid, tensor, amax);
  const bool better =
      TileError(grid, tensor, four, tile, values) < TileError(grid, tensor, factor, tile, values);
  return better ? four : factor;
}

// Under one scale of the tensor.
void QuantizeUnder(const BlockFormat& format, const BlockLayout& layout, float tensor_amax,
                   bool bf16_input, const float* input, const QuantizedBlocks& output,
                   BlockCounts* counts) {
  const BlockGrid grid = BlockGridOf(format, bf16_input);
  const TensorFactor tensor = TensorFactorOf(grid, tensor_amax);
  std::vector<float> values, decoded;
  std::int64_t block = 0;
  ForTiles(layout, format, [&](const BlockTile& tile) {
    values.resize(static_cast<std::size_t>(tile.rows * tile.columns));
    decoded.resize(values.size());
    std::size_t at = 0;
    ForPlaces(layout, tile, [&](std::int64_t from) { values[at++] = input[from]; });
    const BlockFactor factor = FactorOfTile(grid, tensor, tile, values);
    if (output.scales != nullptr) output.scales[block] = factor.stored;
    ++block;
    const auto n = static_cast<std::int64_t>(values.size());
    const auto given = [&values](std::int64_t i) { return values[static_cast<std::size_t>(i)]; };
    at = 0;
    ForPlaces(layout, tile, [&](std::int64_t to) {
      const auto i = static_cast<std::int64_t>(at);
      const BlockFactor own = FactorAt(grid, factor, n, i, given);
      const float element =
          output.words ? RoundElementRandomly(grid, Scaled(grid, own, values[at]),
                                              output.words->At(static_cast<std::uint64_t>(to)))
                       : NearestElement(grid, own, values[at]);
      decoded[at] = ValueOf(grid, own, element);
      if (output.doubled != nullptr) {
        const DoubledValues doubled = DoubledAt(factor, n, i, given);
        output.doubled[to] =
            static_cast<std::uint8_t>((doubled.eight ? 1 : 0) | (doubled.four ? 2 : 0));
      }
      if (output.values != nullptr) output.values[to] = decoded[at];
      if (output.codes != nullptr) output.codes[to] = ElementCodeOf(format.element, element);
      ++at;
    });
    if (counts != nullptr) CountBlock(grid, tensor, factor, values, decoded, *counts);
  });
}

}  // namespace

std::int64_t BlockLayout::blocks_per_row(const BlockFormat& format) const {
  return (length + format.block - 1) / format.block;
}
std::int64_t BlockLayout::block_rows(const BlockFormat& format) const {
  return format.square ? (rows + format.block - 1) / format.block : rows;
}
std::int64_t BlockLayout::blocks(const BlockFormat& format) const {
  return matrices * block_rows(format) * blocks_per_row(format);
}

BlockLayout BlockLayoutOf(const std::vector<std::int64_t>& shape, std::size_t axis, bool square) {
  BlockLayout layout;
  if (shape.empty()) {
    layout.length = 1;
    return layout;
  }
  layout.length = shape[axis];
  for (std::size_t i = 0; i < axis; ++i) layout.rows *= shape[i];
  for (std::size_t i = axis + 1; i < shape.size(); ++i) layout.stride *= shape[i];
  // Lines of an inner axis are interleaved: each place along the axes after it is a matrix of its
  // own, and the axes before it are the rows.
  layout.row_stride = layout.length * layout.stride;
  layout.matrices = layout.stride, layout.matrix_stride = 1;
  if (axis != 0 || !square || shape.size() < 2) return layout;
  layout.rows = shape[1];
  layout.matrices = layout.rows > 0 ? layout.stride / layout.rows : 0;
  layout.row_stride = layout.matrices;
  return layout;
}

float AmaxOf(std::span<const float> values) {
  std::uint32_t bits = 0;  // NaN is above inf
  for (const float x : values) bits = std::max(bits, MagnitudeBits(x));
  return OfBits(bits);
}

std::vector<float> RowAmaxesOf(const BlockLayout& layout, const float* values) {
  std::vector<float> amaxes;
  for (std::int64_t matrix = 0; matrix < layout.matrices; ++matrix) {
    for (std::int64_t row = 0; row < layout.rows; ++row) {
      const float* line = values + matrix * layout.matrix_stride + row * layout.row_stride;
      std::uint32_t bits = 0;
      for (std::int64_t i = 0; i < layout.length; ++i)
        bits = std::max(bits, MagnitudeBits(line[i * layout.stride]));
      amaxes.push_back(OfBits(bits));
    }
  }
  return amaxes;
}

void QuantizeRows(const BlockFormat& format, const BlockLayout& layout,
                  std::span<const float> row_amaxes, bool bf16_input, const float* input,
                  const QuantizedBlocks& output, BlockCounts* counts) {
  BlockLayout line = layout;
  // Each line is quantized as a tensor by itself, whose tensor scale is that of the row.
  line.matrices = line.rows = 1;
  const std::int64_t blocks = layout.blocks_per_row(format);
  for (std::int64_t i = 0; i < std::ssize(row_amaxes); ++i) {
    const std::int64_t begin =
        i / layout.rows * layout.matrix_stride + i % layout.rows * layout.row_stride;
    const auto from = [](auto* first, std::int64_t at) {
      return first == nullptr ? nullptr : first + at;
    };
    QuantizedBlocks of_line = {from(output.values, begin), from(output.codes, begin),
                               from(output.scales, i * blocks), from(output.doubled, begin),
                               output.words};
    if (of_line.words) of_line.words->first += static_cast<std::uint64_t>(begin);
    QuantizeUnder(format, line, row_amaxes[static_cast<std::size_t>(i)], bf16_input, input + begin,
                  of_line, counts);
  }
}

void QuantizeBlocks(const BlockFormat& format, const BlockLayout& layout, float tensor_amax,
                    bool bf16_input, const float* input, const QuantizedBlocks& output,
                    BlockCounts* counts) {
  if (!format.row_scaled)
    return QuantizeUnder(format, layout, tensor_amax, bf16_input, input, output, counts);
  QuantizeRows(format, layout, RowAmaxesOf(layout, input), bf16_input, input, output, counts);
}

}  // namespace ada
