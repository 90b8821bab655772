// See block_operand.h.
#include "backend/cuda/matmul/block_operand.h"

#include <algorithm>
#include <limits>

#include "backend/cuda/kernels/block_counts.h"
#include "backend/cuda/launch.h"
#include "backend/decisions.h"
#include "error.h"

namespace ada::backend::cuda {
namespace {

constexpr std::int64_t kMostBlocks = 4096;  // of a launch: enough for any device

int BlocksFor(std::int64_t items, std::int64_t of_block) {
  return static_cast<int>(std::min(kMostBlocks, (items + of_block - 1) / of_block));
}
std::uint32_t Narrow(std::int64_t n) { return static_cast<std::uint32_t>(n); }

}  // namespace

// Kernels number values in 32 bits, which a device divides faster.
BlockOperand::BlockOperand(const Context& context, const OperandRounding& operand,
                           const OperandRows& rows, std::int64_t most, bool bf16,
                           const RoundingStats& before)
    : stream_(context.stream),
      pass_(context.pass),
      operand_(operand),
      format_(*operand.block),
      rows_(rows),
      most_(most),
      grid_(BlockGridOf(format_, bf16)),
      before_(before) {
  ADA_CHECK(most * rows.width <= std::numeric_limits<std::uint32_t>::max());
  tiles_.width = Narrow(rows.width), tiles_.down = rows.down;
  if (rows.down) {
    tiles_.lines = tiles_.stride = tiles_.width;
    tiles_.tall = Narrow(format_.block);
  } else {
    tiles_.lines = Narrow(rows.matrices), tiles_.length = Narrow(rows.length);
    tiles_.stride = Narrow(rows.stride);
    tiles_.wide = Narrow(format_.block);
    if (format_.square) tiles_.tall = Narrow(format_.block);
  }
}

void BlockOperand::TakeAsPyTorch(std::int64_t channels) {
  tiles_.channels = Narrow(channels), tiles_.pixels = tiles_.width / tiles_.channels;
}

// Without groups all rows of the call are one group: blocks that run down are cut at its end.
BlockTiles BlockOperand::TilesOf(std::int64_t rows) const {
  BlockTiles tiles = tiles_;
  tiles.rows = Narrow(rows);
  tiles.group = rows_.group > 0 ? Narrow(rows_.group) : tiles.rows;
  tiles.tall = std::min(tiles.tall, tiles.group);
  return tiles;
}

std::int64_t BlockOperand::RangesOf(const BlockTiles& tiles) const {
  const std::int64_t range = RowsOfRange(rows_, format_);
  return tiles.rows / tiles.group * ((tiles.group + range - 1) / range);
}

// Depends on the format and on whether blocks may be counted, not on what a pass does: the memory
// is reserved once.
BlockOperand::Work BlockOperand::WorkOf(const BlockTiles& tiles) const {
  const std::size_t blocks = tiles.tiles();
  Work work{Aligned(blocks * sizeof(std::uint32_t)), 0, 0, 0};
  if (format_.row_scaled) work.rows = Aligned(tiles.scale_rows() * sizeof(std::uint32_t));
  if (format_.rule == BlockRule::kFourOverSix)
    work.errors = Aligned(2 * blocks * tiles.runs_of_tile() * sizeof(float));
  if (operand_.block_counts != nullptr)
    work.parts = Aligned(static_cast<std::size_t>(RangesOf(tiles)) * sizeof(OperandCounts));
  return work;
}

std::size_t BlockOperand::work_bytes() const {
  const Work work = WorkOf(TilesOf(most_));
  return Aligned(sizeof(std::uint32_t)) + work.largest + work.rows + work.errors + work.parts;
}

// Several runs of a block are combined by atomic maxima, which start from zeros.
void BlockOperand::FindLargest(const BlockRounding& how, std::uint32_t* amax) const {
  const BlockTiles& tiles = how.tiles;
  if (tiles.runs_of_tile() > 1)
    stream_.Zero(reinterpret_cast<std::byte*>(how.largest),
                 std::size_t{tiles.tiles()} * sizeof(std::uint32_t));
  if (amax != nullptr) stream_.Zero(reinterpret_cast<std::byte*>(amax), sizeof *amax);
  // Threads that are neighbors read neighbors: of a run of adjacent values, or of adjacent runs.
  constexpr int kLanes = 8;
  const bool adjacent = !tiles.runs_down() && tiles.stride == 1 && tiles.pixels == 0;
  if (adjacent && tiles.length >= kLanes) {
    using Kernel = LargestInBlocksKernel<kLanes>;
    return Launch(stream_, Kernel{how.in, tiles, how.largest, amax},
                  BlocksFor(tiles.runs(), Kernel::kRuns));
  }
  using Kernel = LargestInBlocksKernel<1>;
  Launch(stream_, Kernel{how.in, tiles, how.largest, amax}, BlocksFor(tiles.runs(), Kernel::kRuns));
}

void BlockOperand::ChooseScales(const BlockRounding& how, float* errors) const {
  ForEach(stream_, how.tiles.runs(), FourOverSixErrors{how, errors});
  ForEach(stream_, how.tiles.tiles(), ChooseFourOrSix{how, errors});
}

void BlockOperand::Count(const BlockRounding& how, std::byte* parts) const {
  const CountBlocksKernel kernel{how, Narrow(RowsOfRange(rows_, format_)),
                                 reinterpret_cast<OperandCounts*>(parts)};
  const std::int64_t ranges = RangesOf(how.tiles);
  Launch(stream_, kernel,
         static_cast<int>((ranges + CountBlocksKernel::kWarps - 1) / CountBlocksKernel::kWarps));
  Launch(stream_,
         JoinBlockCountsKernel{kernel.parts, ranges, operand_.block_counts, operand_.stats}, 1);
}

// In order: the largest magnitudes of blocks, and of the tensor or its rows; under four_over_six
// the choice; the values. A pass that counts inspects values before and counts blocks after.
void BlockOperand::Round(const Pass& pass, const TensorSpan& in, std::int64_t rows,
                         std::int64_t first, const std::uint32_t* amax, const TensorSpan& out,
                         std::byte* work) const {
  BlockRounding how;
  how.in = in, how.tiles = TilesOf(rows), how.grid = grid_;
  how.stochastic =
      operand_.style.stochastic && pass.training && format_.rule != BlockRule::kFourOverSix;
  how.stream = operand_.style.stream, how.first = first, how.pass = pass_;
  const Work parts = WorkOf(how.tiles);
  auto* own = reinterpret_cast<std::uint32_t*>(work);
  how.largest = reinterpret_cast<std::uint32_t*>(work + Aligned(sizeof *own));
  std::byte* const of_rows = reinterpret_cast<std::byte*>(how.largest) + parts.largest;
  std::byte* const errors = of_rows + parts.rows;
  if (asks_amax()) how.amax = amax != nullptr ? amax : own;
  FindLargest(how, asks_amax() && amax == nullptr ? own : nullptr);
  if (format_.row_scaled) {
    how.row_amaxes = reinterpret_cast<std::uint32_t*>(of_rows);
    ForEach(stream_, how.tiles.scale_rows(), LargestInRows{how});
  }
  if (parts.errors > 0) ChooseScales(how, reinterpret_cast<float*>(errors));

  const bool counts = Counts(pass, operand_.style, operand_.stats);
  if (counts) before_.Count(pass, in, rows * rows_.width);
  const RoundInBlocksKernel kernel{how, out, counts ? nullptr : operand_.stats};
  Launch(stream_, kernel, BlocksFor(rows * rows_.width, 4 * RoundInBlocksKernel::kThreads));
  if (operand_.block_counts != nullptr && FillsStats(pass, operand_.style))
    Count(how, errors + parts.errors);
}

}  // namespace ada::backend::cuda
