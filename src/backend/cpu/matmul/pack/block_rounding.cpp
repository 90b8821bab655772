#include "backend/cpu/matmul/pack/block_rounding.h"

#include <algorithm>
#include <cmath>

#include "backend/cpu/rounding/blocks.h"
#include "backend/decisions.h"
#include "core/number_grid.h"

namespace ada::backend::cpu {
namespace {

// body(tile) for each block of a range.
struct Tile {
  std::int64_t begin, rows, columns;
};
template <class Body>
void ForTiles(const BlockLayout& layout, const BlockFormat& format, Body&& body) {
  const std::int64_t tall = format.square ? format.block : 1;
  for (std::int64_t m = 0; m < layout.matrices; ++m)
    for (std::int64_t row = 0; row < layout.rows; row += tall)
      for (std::int64_t i = 0; i < layout.length; i += format.block)
        body(Tile{m * layout.matrix_stride + row * layout.row_stride + i * layout.stride,
                  std::min(tall, layout.rows - row),
                  std::min<std::int64_t>(format.block, layout.length - i)});
}
// body(place) for each value of a block.
template <class Body>
void ForPlaces(const BlockLayout& layout, const Tile& tile, Body&& body) {
  for (std::int64_t row = 0; row < tile.rows; ++row) {
    const std::int64_t line = tile.begin + row * layout.row_stride;
    for (std::int64_t i = 0; i < tile.columns; ++i) body(line + i * layout.stride);
  }
}

}  // namespace

BlockRounding::BlockRounding(const Context& context, const OperandRounding& operand,
                             const OperandRows& rows, bool bf16)
    : context_(context),
      kernels_(BlockKernelsOf(context.kernels)),
      operand_(operand),
      format_(*operand.block),
      rows_(rows),
      bf16_(bf16),
      grid_(BlockGridOf(format_, bf16)),
      step_(rows.down || format_.square ? format_.block : 1) {
  const std::int64_t wanted = std::max<std::int64_t>(1, kSegment / rows.width);
  most_ = std::max(step_, wanted / step_ * step_);
  if (rows.group > 0) most_ = std::min(most_, rows.group);
  const auto bytes = WholeLines(static_cast<std::size_t>(most_ * rows.width) * sizeof(float));
  context.scratch.Reserve(4 * bytes, 0);
}

std::vector<RowRange> BlockRounding::RangesOf(std::int64_t rows) const {
  const std::int64_t group = rows_.group > 0 ? rows_.group : rows;
  std::vector<RowRange> ranges;
  for (std::int64_t begin = 0; begin < rows; begin += group)
    for (std::int64_t i = 0; i < group; i += most_)
      ranges.push_back({begin + i, std::min(most_, group - i)});
  return ranges;
}

BlockLayout BlockRounding::LayoutOf(std::int64_t rows) const {
  if (rows_.down) return {rows_.width, 1, rows, 1, 0, rows_.width};
  return {rows_.matrices, rows, rows_.length, rows_.matrix_stride, rows_.width, rows_.stride};
}

BlockRounding::Buffers BlockRounding::BuffersOf(int worker) const {
  const auto values =
      WholeLines(static_cast<std::size_t>(most_ * rows_.width) * sizeof(float)) / sizeof(float);
  auto* begin = reinterpret_cast<float*>(context_.scratch.worker(worker));
  return {begin, begin + values, begin + 2 * values, begin + 3 * values};
}

// Row by row, under the scales of the columns.
void BlockRounding::RoundDown(const RowRange& range, const TensorFactor& tensor,
                              BlockRoundArgs args, const Buffers& b) const {
  const std::int64_t width = rows_.width;
  std::vector<std::uint32_t> largest(static_cast<std::size_t>(width));
  args.encode = b.encode, args.decode = b.decode, args.n = width;
  const std::uint64_t first = args.first;
  for (std::int64_t row = 0; row < range.rows; row += format_.block) {
    const std::int64_t end = std::min(range.rows, row + format_.block);
    std::fill(largest.begin(), largest.end(), 0u);
    for (std::int64_t i = row; i < end; ++i)
      kernels_.largest_each(b.values + i * width, largest.data(), width);
    for (std::int64_t c = 0; c < width; ++c) {
      const BlockFactor factor =
          BlockFactorOf(grid_, tensor, OfBits(largest[static_cast<std::size_t>(c)]));
      b.encode[c] = factor.encode, b.decode[c] = factor.decode;
    }
    for (std::int64_t i = row; i < end; ++i) {
      args.x = b.values + i * width;
      args.first = first + static_cast<std::uint64_t>(i * width);
      kernels_.round(args);
    }
  }
}

void BlockRounding::Round(const RowRange& range, const TensorFactor& tensor, BlockRoundArgs args,
                          const Buffers& b) const {
  const BlockLayout layout = LayoutOf(range.rows);
  if (grid_.rule == BlockRule::kFourOverSix)
    return QuantizeBlocks(format_, layout, tensor.amax, bf16_, b.values, {b.values}, nullptr);
  if (rows_.down) return RoundDown(range, tensor, args, b);
  ForTiles(layout, format_, [&](const Tile& tile) {
    std::uint32_t largest = 0;
    ForPlaces(layout, tile,
              [&](std::int64_t at) { largest = std::max(largest, MagnitudeBits(b.values[at])); });
    const BlockFactor factor = BlockFactorOf(grid_, tensor, OfBits(largest));
    ForPlaces(layout, tile,
              [&](std::int64_t at) { b.encode[at] = factor.encode, b.decode[at] = factor.decode; });
  });
  args.x = b.values, args.encode = b.encode, args.decode = b.decode;
  args.n = range.rows * rows_.width;
  kernels_.round(args);
}

void BlockRounding::Count(const RowRange& range, const TensorFactor& tensor, const Buffers& b,
                          Part& part) const {
  const BlockLayout layout = LayoutOf(range.rows);
  const auto normal = static_cast<float>(format_.element.smallest_normal());
  std::vector<float> values, decoded;
  ForTiles(layout, format_, [&](const Tile& tile) {
    values.clear(), decoded.clear();
    std::uint32_t largest = 0;
    ForPlaces(layout, tile, [&](std::int64_t at) {
      values.push_back(b.before[at]), decoded.push_back(b.values[at]);
      largest = std::max(largest, MagnitudeBits(b.before[at]));
    });
    BlockFactor factor = BlockFactorOf(grid_, tensor, OfBits(largest));
    if (grid_.rule == BlockRule::kFourOverSix) {
      // Whichever of the two gave these values.
      const BlockFactor four = FourFactorOf(grid_, tensor, OfBits(largest));
      const auto gives = [&](const BlockFactor& of) {
        for (std::size_t i = 0; i < values.size(); ++i)
          if (BitsOf(ValueOf(grid_, of, RoundElement(grid_, Scaled(grid_, of, values[i])))) !=
              BitsOf(decoded[i]))
            return false;
        return true;
      };
      if (!gives(factor) && gives(four)) factor = four;
    }
    for (const float v : decoded)
      if (v != 0 && std::fabs(v) < normal * factor.decode) ++part.subnormal;
    CountBlock(grid_, tensor, factor, values, decoded, part.counts);
  });
}

std::int64_t BlockRounding::Run(const Pass& pass, std::int64_t rows, float amax,
                                std::uint64_t first, const Read& read, const Write& write) {
  const TensorFactor tensor = TensorFactorOf(grid_, amax);
  const std::vector<RowRange> ranges = RangesOf(rows);
  const bool counts = operand_.block_counts != nullptr && FillsStats(pass, operand_.style);
  std::vector<Part> parts(counts ? ranges.size() : 0);
  BlockRoundArgs args;
  args.element = format_.element, args.element.saturate = true;
  args.plain_zeros = grid_.plain_zeros, args.divides = grid_.divides;
  args.nan_is_zero = grid_.nan_is_zero;
  args.stochastic = operand_.style.stochastic && pass.training;
  args.key = pass.seed ^ operand_.style.stream, args.draw = pass.draw;
  context_.pool.For(static_cast<std::int64_t>(ranges.size()), [&](std::int64_t i, int worker) {
    const RowRange& range = ranges[static_cast<std::size_t>(i)];
    const Buffers b = BuffersOf(worker);
    read(range, b.values);
    if (counts) std::copy_n(b.values, range.rows * rows_.width, b.before);
    BlockRoundArgs own = args;
    own.first = first + static_cast<std::uint64_t>(range.first * rows_.width);
    Round(range, tensor, own, b);
    if (counts) Count(range, tensor, b, parts[static_cast<std::size_t>(i)]);
    write(range, b.values);
  });
  if (!counts) return 0;
  Part total;
  for (const Part& part : parts) {
    total.counts.Add(part.counts);
    total.subnormal += part.subnormal;
  }
  *operand_.block_counts = total.counts;
  return total.subnormal;
}

}  // namespace ada::backend::cpu
