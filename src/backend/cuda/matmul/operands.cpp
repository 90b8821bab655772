// Blocks are rounded by kernels/block_rounding.h and counted here, by the rules of number/blocks.
// Sums of counts are in double, in the order in which the CPU backend adds them: the blocks of a
// range of rows one after the other, then the ranges.
#include "backend/cuda/matmul/operands.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "backend/cuda/kernels/block_rounding.h"
#include "backend/cuda/launch.h"
#include "backend/decisions.h"
#include "error.h"
#include "number/blocks/block_counts_inline.h"

namespace ada::backend::cuda {
namespace {

// Which storages of 16 bits hold every value of an operand.
struct Holders {
  bool bf16 = false, fp16 = false;
};

Holders Of(Storage storage) { return {storage == Storage::kBF16, storage == Storage::kF16}; }

Holders Of(const NumberFormat& format) {
  const auto holds = [&](const NumberFormat& wide) {
    return wide.mantissa_bits >= format.mantissa_bits && wide.largest() >= format.largest() &&
           wide.smallest_subnormal() <= format.smallest_subnormal();
  };
  return {holds(kBf16), holds(kFp16)};
}

Storage StoredAs(const MatmulSpec& spec, Operand operand) {
  if (IsWeight(operand))
    return spec.w_style.per_tensor_scale != nullptr ? Storage::kF32 : StorageFor(spec.w_format);
  const bool is_x = operand == Operand::kForwardX || operand == Operand::kDwX;
  return is_x ? spec.x.storage : spec.dy.tensor.storage;
}

// A value that was divided by a per-tensor scale may be any fp32 number, which nothing of 16 bits
// holds.
Holders HoldersOf(const MatmulSpec& spec, Operand operand) {
  const OperandRounding& rounding = spec.operands[IndexOf(operand)];
  const Storage stored = StoredAs(spec, operand);
  if (!rounding.rounds) return Of(stored);
  if (rounding.style.per_tensor_scale != nullptr) return {};
  if (!rounding.block) return Of(rounding.format);
  // A transform of fp16 makes values of fp32.
  const bool widened = rounding.hadamard && stored == Storage::kF16;
  return {FitsBf16(*rounding.block, stored != Storage::kF32 && !widened), false};
}

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

constexpr std::int64_t kMostBlocks = 4096;  // of a launch: enough for any device

int BlocksFor(std::int64_t items, std::int64_t of_block) {
  return static_cast<int>(std::min(kMostBlocks, (items + of_block - 1) / of_block));
}
std::uint32_t Narrow(std::int64_t n) { return static_cast<std::uint32_t>(n); }

}  // namespace

bool Rounds(const MatmulSpec& spec, MatmulKind kind) {
  const std::array<Operand, 2> both = BothOperandsOf(kind);
  return std::any_of(both.begin(), both.end(),
                     [&](Operand operand) { return spec.operands[IndexOf(operand)].rounds; });
}

// Both operands of a product have one storage, as libraries want it.
Storage CarrierOf(const MatmulSpec& spec, MatmulKind kind) {
  const std::array<Operand, 2> both = BothOperandsOf(kind);
  const Holders first = HoldersOf(spec, both[0]), second = HoldersOf(spec, both[1]);
  return first.bf16 && second.bf16   ? Storage::kBF16
         : first.fp16 && second.fp16 ? Storage::kF16
                                     : Storage::kF32;
}

void RefuseScales(const OperandRounding& operand) {
  if (operand.adaptive)
    throw ConfigError(
        "precision.operands.tensor_scaling: kind adaptive is not there on GPUs; leave it out, or "
        "device: cpu");
  if (!operand.row_scaled) return;
  throw ConfigError(
      "precision.operands.tensor_scaling: kind row is not there on GPUs; use kind current, or "
      "device: cpu");
}

void RefuseTransform(const OperandRounding& operand, Operand which) {
  const HadamardRule& rule = operand.hadamard;
  const bool is_dw = which == Operand::kDwX || which == Operand::kDwDy;
  if (!rule || (is_dw && rule.size == kHadamardSize && rule.listed.empty())) return;
  throw ConfigError(
      "precision.operands.hadamard: on GPUs there is a transform of dw alone, of size 16, with "
      "signs "
      "fixed or random; use that, or device: cpu");
}

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
