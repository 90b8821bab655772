// What is counted of an operand in a block-scaled format, block by block, by the rules of
// number/blocks. Sums are in double, in the order in which the CPU backend adds them: the blocks of
// a range of rows one after the other, then the ranges.
#pragma once
#include <cstdint>

#include "backend/cuda/kernels/block_rounding.h"
#include "number/blocks/block_counts_inline.h"

namespace ada::backend::cuda {

// Joined by shuffles as words of 32 bits (JoinLanes), so it is plain data.
struct OperandCounts {
  BlockCounts blocks;
  std::int64_t subnormal = 0;  // elements
};
struct AddOperandCounts {
  ADA_HOST_DEVICE OperandCounts operator()(const OperandCounts& a, const OperandCounts& b) const {
    OperandCounts sum = a;
    AddCounts(b.blocks, sum.blocks);
    sum.subnormal += b.subnormal;
    return sum;
  }
};

// part(0), part(1), ... added up in this order by the 32 threads of a warp; in lane 0. add(i, to):
// adds part i.
// A lane adds one part at a time and lane 0 joins them in order: as slow as one thread would add,
// but parts are computed 32 at a time.
template <class AddPart>
ADA_HOST_DEVICE inline OperandCounts SumInOrder(int lane, std::int64_t parts, const AddPart& add) {
  constexpr int kLanes = 32;
  OperandCounts total;
  for (std::int64_t first = 0; first < parts; first += kLanes)
    total = JoinLanes<kLanes>(
        lane,
        [&](int k) {
          OperandCounts own;
          if (k == 0) own = total;
          if (first + k < parts) add(first + k, own);
          return own;
        },
        AddOperandCounts());
  return total;
}

// The counts of each range: a warp a range.
// Values are rounded once more here, only to be counted: on logged steps alone.
struct CountBlocksKernel {
  static constexpr int kThreads = 128, kPhases = 1, kWarps = kThreads / 32;
  struct Shared {};
  struct Own {};
  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared&, Own&) const {
    const std::int64_t range = std::int64_t{at.block} * kWarps + at.thread / 32;
    if (range >= ranges()) return;
    const std::uint32_t group = how.tiles.group,
                        of = static_cast<std::uint32_t>(range) / of_group();
    const std::uint32_t row = (static_cast<std::uint32_t>(range) - of * of_group()) * range_rows;
    const std::uint32_t rows = BlockTiles::Least(range_rows, group - row);
    const std::uint32_t first = of * how.tiles.tiles_of_group() + row / how.tiles.tall;
    const std::uint32_t tile_rows = BlockTiles::Quotient(rows, how.tiles.tall);
    const BlockRounding::Draw draw = how.Now();
    const OperandCounts counts = SumInOrder(
        at.thread % 32, std::int64_t{tile_rows} * how.tiles.lines * how.tiles.per_line(),
        [&](std::int64_t number, OperandCounts& to) {
          const auto n = static_cast<std::uint32_t>(number);
          const std::uint32_t i = n % how.tiles.per_line(), rest = n / how.tiles.per_line();
          const std::uint32_t line = rest / tile_rows;
          Count(first + rest - line * tile_rows, line, i, draw, to);
        });
    if (at.thread % 32 == 0) parts[range] = counts;
  }

  ADA_HOST_DEVICE std::uint32_t of_group() const {
    return BlockTiles::Quotient(how.tiles.group, range_rows);
  }
  ADA_HOST_DEVICE std::int64_t ranges() const {
    return std::int64_t{how.tiles.rows / how.tiles.group} * of_group();
  }

  BlockRounding how;
  std::uint32_t range_rows;  // of a range; the last of a group may have fewer
  OperandCounts* parts;      // by range

 private:
  ADA_HOST_DEVICE void Count(std::uint32_t tile_row, std::uint32_t line, std::uint32_t i,
                             const BlockRounding::Draw& draw, OperandCounts& to) const {
    const BlockTiles& tiles = how.tiles;
    const BlockTile tile = tiles.TileAt(tile_row, line, i);
    const std::uint32_t number = (tile_row * tiles.lines + line) * tiles.per_line() + i;
    const TensorFactor tensor = how.OfTensorAt(number);
    const BlockFactor taken = how.FactorOf(tensor, number);
    const auto at = [&](std::int64_t k) {
      const auto value = static_cast<std::uint32_t>(k);
      const std::uint32_t row = tile.row + value / tile.columns;
      const std::uint32_t column = tiles.ColumnOf(line, tile.first + value % tile.columns);
      const float x = Load(how.in, tiles.Place(row, column));
      const std::int64_t index = how.first + std::int64_t{row} * tiles.width + column;
      return BlockValue{
          x, how.Decoded(taken, x, how.stochastic ? RandomWord(draw.key, draw.draw, index) : 0)};
    };
    const std::int64_t n = std::int64_t{tile.rows} * tile.columns;
    const BlockFactor factor = CountedFactorOf(how.grid, tensor, how.AmaxOf(number), n, at);
    to.subnormal += SubnormalsOfBlock(how.grid, factor, n, at);
    CountBlockOf(how.grid, tensor, factor, n, at, to.blocks);
  }
};

// Sums the counts over all ranges and derives those of the rounding. One block. They are filled in
// if an inspection before it has filled in the others.
struct JoinBlockCountsKernel {
  static constexpr int kThreads = 32, kPhases = 1;
  struct Shared {};
  struct Own {};
  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared&, Own&) const {
    const OperandCounts all =
        SumInOrder(at.thread, ranges, [this](std::int64_t range, OperandCounts& to) {
          to = AddOperandCounts()(to, parts[range]);
        });
    if (at.thread != 0) return;
    *blocks = all.blocks;
    if (stats != nullptr && stats->full) TakeBlockCounts(all.blocks, all.subnormal, *stats);
  }

  const OperandCounts* parts;
  std::int64_t ranges;
  BlockCounts* blocks;
  TensorStats* stats;
};

}  // namespace ada::backend::cuda
