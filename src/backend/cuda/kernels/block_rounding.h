// Rounding to block-scaled formats.
#pragma once
#include <cstdint>

#include "backend/cuda/kernels/rounding.h"
#include "backend/cuda/kernels/threads.h"
#include "backend/cuda/launch.h"
#include "number/blocks/block_choices_inline.h"
#include "number/host_device.h"

namespace ada::backend::cuda {

// --- Where values lie ---

// Where the values of a block lie in an operand, for kernels: numbers of 32 bits, which a device
// divides faster. A tensor of which blocks are made has fewer values than 2^32.
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

// --- Rounding ---

// Rounding to block-scaled formats by the rules of number/blocks: the largest magnitude of each
// block, under four_over_six which of its two scales it takes, and then value by value. The
// products' operands are what is rounded.
inline constexpr std::uint32_t kTakesFour = 0x80000000u;

// An operand, and how it is rounded.
// Shared by all kernels of one operand: these run one after the other in one stream, each reading
// what those before it wrote to `largest` and `amax`. Blocks are numbered as BlockTiles numbers
// them.
struct BlockRounding {
  TensorSpan in;
  BlockTiles tiles;
  BlockGrid grid;
  // By block: bits of its largest magnitude; with kTakesFour where four_over_six took the four.
  std::uint32_t* largest = nullptr;
  // Bits of the tensor's largest magnitude; null: the format has no scale of the tensor.
  const std::uint32_t* amax = nullptr;
  // The same of each row (BlockTiles::ScaleRowOf); null: rows have no scale of their own.
  std::uint32_t* row_amaxes = nullptr;
  bool stochastic = false;
  std::uint64_t stream = 0;
  std::int64_t first = 0;            // value 0 of the call, in the batch of all processes
  const PassValues* pass = nullptr;  // with `stochastic`

  ADA_HOST_DEVICE TensorFactor OfTensor() const {
    return TensorFactorOf(grid, amax == nullptr ? 0 : OfBits(*amax));
  }
  ADA_HOST_DEVICE TensorFactor OfTensorAt(std::uint32_t tile) const {
    if (row_amaxes == nullptr) return OfTensor();
    return TensorFactorOf(grid, OfBits(row_amaxes[tiles.ScaleRowOf(tile)]));
  }
  ADA_HOST_DEVICE float AmaxOf(std::uint32_t tile) const {
    return OfBits(largest[tile] & ~kTakesFour);
  }
  ADA_HOST_DEVICE BlockFactor FactorOf(const TensorFactor& tensor, std::uint32_t tile) const {
    return (largest[tile] & kTakesFour) != 0 ? FourFactorOf(grid, tensor, AmaxOf(tile))
                                             : BlockFactorOf(grid, tensor, AmaxOf(tile));
  }
  // The key and counter of random words.
  struct Draw {
    std::uint64_t key = 0, draw = 0;
  };
  ADA_HOST_DEVICE Draw Now() const {
    return stochastic ? Draw{pass->seed ^ stream, pass->draw} : Draw{};
  }
  ADA_HOST_DEVICE float Decoded(const BlockFactor& factor, float x, std::uint32_t word) const {
    const float scaled = Scaled(grid, factor, x);
    return ValueOf(
        grid, factor,
        stochastic ? RoundElementRandomly(grid, scaled, word) : RoundElement(grid, scaled));
  }
};

// The largest magnitude of each block, and with `amax` (0 before) of the tensor. Where a block has
// several runs `largest` is 0 before. kLanes threads share a run.
// First kernel: magnitudes as bits, whose order is that of numbers with NaN above all.
template <int kLanes>
struct LargestInBlocksKernel {
  static constexpr int kThreads = 256, kPhases = 2, kRuns = kThreads / kLanes;
  struct Shared {
    std::uint32_t largest[kRuns];
  };
  struct Own {};
  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own&) const {
    if constexpr (kPhase == 0) {
      const std::uint32_t largest = OfRuns(at);
      if (at.thread % kLanes == 0) shared.largest[at.thread / kLanes] = largest;
    } else {
      if (at.thread != 0 || amax == nullptr) return;
      std::uint32_t largest = 0;
      for (const std::uint32_t one : shared.largest) largest = Larger(largest, one);
      AtomicMax(amax, largest);
    }
  }

  TensorSpan in;
  BlockTiles tiles;
  std::uint32_t *largest, *amax;

 private:
  ADA_HOST_DEVICE static std::uint32_t Larger(std::uint32_t a, std::uint32_t b) {
    return a > b ? a : b;
  }
  // What all runs of the thread's lanes have; in the first lane.
  ADA_HOST_DEVICE std::uint32_t OfRuns(const ThreadIndex& at) const {
    const int lane = at.thread % kLanes;
    const std::int64_t step = std::int64_t{at.blocks} * kRuns, runs = tiles.runs();
    std::uint32_t all = 0;
    for (std::int64_t i = std::int64_t{at.block} * kRuns + at.thread / kLanes; i < runs;
         i += step) {
      const BlockRun run = tiles.RunAt(static_cast<std::uint32_t>(i));
      const std::uint32_t one = JoinLanes<kLanes>(
          lane,
          [&](int first) {
            std::uint32_t of_lane = 0;
            for (std::uint32_t k = static_cast<std::uint32_t>(first); k < run.values; k += kLanes)
              of_lane = Larger(of_lane, MagnitudeBits(Load(in, tiles.PlaceIn(run, k))));
            return of_lane;
          },
          [](std::uint32_t a, std::uint32_t b) { return Larger(a, b); });
      if (lane != 0) continue;
      all = Larger(all, one);
      if (tiles.runs_of_tile() == 1)
        largest[run.tile] = one;
      else
        AtomicMax(&largest[run.tile], one);
    }
    return all;
  }
};

// By row: the largest of its blocks, before four_over_six has chosen.
// Body of ForEach over scale_rows().
struct LargestInRows {
  BlockRounding how;
  ADA_HOST_DEVICE void operator()(std::int64_t i) const {
    const auto row = static_cast<std::uint32_t>(i);
    std::uint32_t largest = 0;
    for (std::uint32_t k = 0; k < how.tiles.tiles_of_scale_row(); ++k) {
      const std::uint32_t of = how.largest[how.tiles.TileOfScaleRow(row, k)];
      largest = of > largest ? of : largest;
    }
    how.row_amaxes[row] = largest;
  }
};

// four_over_six: the errors of each run under both scales, of block t's run p at 2 * (t * runs of a
// block + p): the six's, and the four's.
// Body of ForEach over runs(). Errors are summed run by run, in the order of number/blocks, so that
// the choice is the CPU's.
struct FourOverSixErrors {
  BlockRounding how;
  float* errors;
  ADA_HOST_DEVICE void operator()(std::int64_t i) const {
    const BlockRun run = how.tiles.RunAt(static_cast<std::uint32_t>(i));
    const TensorFactor tensor = how.OfTensorAt(run.tile);
    const float amax = how.AmaxOf(run.tile);
    const auto value = [&](std::int64_t k) {
      return Load(how.in, how.tiles.PlaceIn(run, static_cast<std::uint32_t>(k)));
    };
    const std::int64_t at = std::int64_t{run.tile} * how.tiles.runs_of_tile() + run.part;
    errors[2 * at] = FourOverSixRowError(how.grid, tensor, SixFactorOf(how.grid, tensor, amax),
                                         run.values, value);
    errors[2 * at + 1] = FourOverSixRowError(how.grid, tensor, FourFactorOf(how.grid, tensor, amax),
                                             run.values, value);
  }
};
// By block: the four where its error is the smaller one.
// Body of ForEach over tiles().
struct ChooseFourOrSix {
  BlockRounding how;
  float* errors;
  ADA_HOST_DEVICE void operator()(std::int64_t tile) const {
    const std::int64_t most = how.tiles.runs_of_tile();
    const std::int64_t runs =
        most == 1 ? 1 : how.tiles.TileAt(static_cast<std::uint32_t>(tile)).rows;
    float* of = errors + 2 * tile * most;
    const auto join = [&](int which) {
      return JoinRowErrors(runs, [&](std::int64_t run) -> float& { return of[2 * run + which]; });
    };
    const float six = join(0), four = join(1);
    if (four < six) how.largest[tile] |= kTakesFour;
  }
};

// out[i] = the decoded value i, as they lie in memory. `clear`: statistics of a pass that measures
// nothing; null: they are not this kernel's.
// Last kernel. A thread takes four neighbors in memory at a time and keeps the factor of the last
// block that it met: neighbors mostly share it.
struct RoundInBlocksKernel {
  static constexpr int kThreads = 256, kPhases = 1;
  struct Shared {};
  struct Own {};
  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared&, Own&) const {
    if (clear != nullptr && at.block == 0 && at.thread == 0) *clear = TensorStats();
    const BlockTiles& tiles = how.tiles;
    const std::int64_t values = std::int64_t{tiles.rows} * tiles.width;
    const std::int64_t step = std::int64_t{at.blocks} * kThreads * 4;
    // No block has this number: the first value looks its factor up.
    Thread of{how.OfTensor(), {}, ~0u, how.Now()};
    for (std::int64_t i = (std::int64_t{at.block} * kThreads + at.thread) * 4; i < values;
         i += step) {
      if (i + 4 <= values) {
        StoreVec4(out, i, OfVec4(of, i));
        continue;
      }
      for (std::int64_t k = i; k < values; ++k) {
        const Place place = PlaceOf(static_cast<std::uint32_t>(k));
        StoreExact(out, k, Value(of, Load(how.in, k), place, WordOf(of, place)));
      }
    }
  }

  BlockRounding how;
  TensorSpan out;
  TensorStats* clear = nullptr;

 private:
  struct Thread {
    TensorFactor tensor;
    BlockFactor factor;  // of block `tile`
    std::uint32_t tile;
    BlockRounding::Draw draw;
  };
  struct Place {
    std::uint32_t row, column;
  };
  ADA_HOST_DEVICE Place PlaceOf(std::uint32_t i) const {
    const std::uint32_t row = i / how.tiles.width;
    return {row, how.tiles.ColumnAt(i - row * how.tiles.width)};
  }
  ADA_HOST_DEVICE std::uint32_t WordOf(const Thread& of, const Place& place) const {
    if (!how.stochastic) return 0;
    const std::int64_t i = std::int64_t{place.row} * how.tiles.width + place.column;
    return RandomWord(of.draw.key, of.draw.draw, how.first + i);
  }
  ADA_HOST_DEVICE float Value(Thread& of, float x, const Place& place, std::uint32_t word) const {
    const std::uint32_t tile = how.tiles.TileOf(place.row, place.column);
    if (tile != of.tile) {
      if (how.row_amaxes != nullptr) of.tensor = how.OfTensorAt(tile);
      of.factor = how.FactorOf(of.tensor, tile), of.tile = tile;
    }
    return how.Decoded(of.factor, x, word);
  }
  ADA_HOST_DEVICE Vec4 OfVec4(Thread& of, std::int64_t i) const {
    const bool in_order = how.tiles.pixels == 0;
    Vec4Words words = {};
    if (how.stochastic && in_order) words = RandomWords(of.draw.key, of.draw.draw, how.first + i);
    Vec4 x = LoadVec4(how.in, i);
    ADA_UNROLL
    for (int k = 0; k < 4; ++k) {
      const Place place = PlaceOf(static_cast<std::uint32_t>(i) + static_cast<std::uint32_t>(k));
      x.of[k] = Value(of, x.of[k], place, in_order ? words.of[k] : WordOf(of, place));
    }
    return x;
  }
};

}  // namespace ada::backend::cuda
