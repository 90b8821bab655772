// The passes of block_rounding.h over tiles, and where each finds the values and the scales of its
// blocks.
#include "backend/cpu/matmul/pack/block_rounding.h"

#include <algorithm>
#include <cmath>

#include "backend/cpu/rounding/blocks.h"
#include "backend/cpu/rounding/rounding_stats.h"
#include "backend/decisions.h"
#include "number/blocks/block_counts_inline.h"
#include "number/number_grid.h"

namespace ada::backend::cpu {
namespace {

// four_over_six tries two scales a block, HiFloat4 looks at eight and at four of its values: the
// scalar rules do.
bool IsVectorized(const BlockGrid& grid) {
  return grid.rule != BlockRule::kFourOverSix && grid.rule != BlockRule::kHiFloat4;
}

}  // namespace

// The power of two is exact in bf16 whatever the elements are, and the rest lies in [1, 2) unless
// the scale is tiny.
SplitScale SplitTensorScale(const BlockGrid& grid, float amax) {
  const TensorFactor tensor = TensorFactorOf(grid, amax);
  const float scale =
      grid.rule == BlockRule::kTorchao ? tensor.decode : tensor.amax * grid.tensor_reciprocal;
  if (!std::isfinite(scale) || scale == 0) return {scale, 1};
  // Elements times scales of blocks are multiples of 2^-25 at least; bf16's least is 2^-133.
  constexpr int kLeast = -100;
  const int exponent = std::max(std::ilogb(scale), kLeast);
  return {PowerOfTwo(exponent), std::ldexp(scale, -exponent)};
}

void RoundBlocks(const BlockKernels& kernels, const BlockGrid& grid,
                 const std::vector<float>& amaxes, BlockArgs args) {
  auto* const to = static_cast<float*>(args.to.data);  // unless the vectorized kernel has the rule
  const BlockFormat& format = args.format;
  if (!IsVectorized(grid) && format.row_scaled)
    return QuantizeRows(format, args.layout, amaxes, args.bf16_input, to, {to}, nullptr);
  if (!IsVectorized(grid))
    return QuantizeBlocks(format, args.layout, amaxes[0], args.bf16_input, to, {to}, nullptr);
  std::vector<TensorFactor> tensors;
  for (const float amax : amaxes) tensors.push_back(TensorFactorOf(grid, amax));
  args.tensors = tensors.data(), args.tensor_each = format.row_scaled;
  kernels.quantize(args);
}

// Counts are made block by block from values before and after, by the scalar rules that all
// backends share; slow, and only for steps that are logged.
std::int64_t CountBlocks(const BlockGrid& grid, const BlockFormat& format,
                         const BlockLayout& layout, const std::vector<float>& amaxes,
                         const float* before, const float* after, BlockCounts& counts) {
  std::int64_t subnormal = 0;
  std::vector<float> values, decoded;
  ForTiles(layout, format, [&](const BlockTile& tile) {
    values.clear(), decoded.clear();
    std::uint32_t largest = 0;
    ForPlaces(layout, tile, [&](std::int64_t at) {
      values.push_back(before[at]), decoded.push_back(after[at]);
      largest = std::max(largest, MagnitudeBits(before[at]));
    });
    const TensorFactor tensor =
        TensorFactorOf(grid, amaxes[format.row_scaled ? static_cast<std::size_t>(tile.line) : 0]);
    const auto at = [&](std::int64_t i) {
      const auto k = static_cast<std::size_t>(i);
      return BlockValue{values[k], decoded[k]};
    };
    const auto n = static_cast<std::int64_t>(values.size());
    const BlockFactor factor = CountedFactorOf(grid, tensor, OfBits(largest), n, at);
    subnormal += SubnormalsOfBlock(grid, factor, n, at);
    CountBlock(grid, tensor, factor, values, decoded, counts);
  });
  return subnormal;
}

BlockRounding::BlockRounding(const Context& context, const OperandRounding& operand,
                             const OperandRows& rows, bool bf16)
    : context_(context),
      kernels_(BlockKernelsOf(context.kernels)),
      operand_(operand),
      format_(*operand.block),
      rows_(rows),
      bf16_(bf16),
      grid_(BlockGridOf(format_, bf16)),
      most_(RowsOfRange(rows, format_)) {
  context.scratch.Reserve(3 * RangeBytes(), 0);
}

bool BlockRounding::LeavesFactor(const BlockFormat& format) {
  return format.tensor_scale && !format.row_scaled && format.element.mantissa_bits <= 3 &&
         (format.rule == BlockRule::kTe || format.rule == BlockRule::kTorchao);
}

// Blocks may run down the rows of a group: no range crosses from one group to the next.
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

std::size_t BlockRounding::RangeBytes() const {
  return WholeLines(static_cast<std::size_t>(most_ * rows_.width) * sizeof(float));
}
float* BlockRounding::BufferOf(int worker, Buffer which) const {
  return reinterpret_cast<float*>(context_.scratch.worker(worker) +
                                  static_cast<std::size_t>(which) * RangeBytes());
}

// Bits of magnitudes have the order of magnitudes, NaN above all; columns of all ranges of a group
// are joined in the end.
std::vector<float> BlockRounding::ColumnAmaxes(const std::vector<RowRange>& ranges,
                                               std::int64_t rows, TensorSpan from) const {
  const auto width = static_cast<std::size_t>(rows_.width);
  std::vector<std::uint32_t> of_ranges(ranges.size() * width);
  context_.pool.For(std::ssize(ranges), [&](std::int64_t i, int worker) {
    const RowRange& range = ranges[static_cast<std::size_t>(i)];
    float* values = BufferOf(worker, Buffer::kRounded);
    context_.kernels.widen(Advance(from, range.first * rows_.width), values,
                           range.rows * rows_.width);
    for (std::int64_t row = 0; row < range.rows; ++row)
      kernels_.largest_each(values + row * rows_.width,
                            of_ranges.data() + static_cast<std::size_t>(i) * width, rows_.width);
  });
  const std::int64_t group = rows_.group > 0 ? rows_.group : rows;
  std::vector<float> amaxes(static_cast<std::size_t>(rows / group) * width);
  for (std::size_t i = 0; i < of_ranges.size(); ++i) {
    float& amax =
        amaxes[static_cast<std::size_t>(ranges[i / width].first / group) * width + i % width];
    amax = OfBits(std::max(BitsOf(amax), of_ranges[i]));
  }
  return amaxes;
}

// One of the tensor, or those of the lines of a range.
std::vector<float> BlockRounding::AmaxesOf(const RowRange& range, const float* values,
                                           const std::vector<float>& columns) const {
  if (!format_.row_scaled) return columns;
  if (!rows_.down) return RowAmaxesOf(LayoutOf(range.rows), values);
  const std::int64_t group = rows_.group > 0 ? range.first / rows_.group : 0;
  const auto begin = columns.begin() + group * rows_.width;
  return {begin, begin + rows_.width};
}

// One for each value of a block.
void BlockRounding::Scales(const RowRange& range, const std::vector<float>& amaxes,
                           const float* before, float* scales) const {
  const BlockLayout layout = LayoutOf(range.rows);
  ForTiles(layout, format_, [&](const BlockTile& tile) {
    std::uint32_t largest = 0;
    ForPlaces(layout, tile,
              [&](std::int64_t at) { largest = std::max(largest, MagnitudeBits(before[at])); });
    const TensorFactor tensor =
        TensorFactorOf(grid_, amaxes[format_.row_scaled ? static_cast<std::size_t>(tile.line) : 0]);
    const float decode = BlockFactorOf(grid_, tensor, OfBits(largest)).decode;
    ForPlaces(layout, tile, [&](std::int64_t at) { scales[at] = decode; });
  });
}

// The largest magnitude from which the tensor's scale follows under `tensor_scaling: adaptive`: all
// blocks are observed before any is rounded.
float BlockRounding::AdaptedAmax(const std::vector<RowRange>& ranges, float amax,
                                 parallel::Communicator* shared, TensorSpan from,
                                 const Turn& turn) const {
  const scaling::BlockRangeScale scale(format_, bf16_, amax);
  scaling::BlockRange total;
  if (scale.adapts()) {
    std::vector<scaling::BlockRange> parts(ranges.size());
    context_.pool.For(std::ssize(ranges), [&](std::int64_t i, int worker) {
      const RowRange& range = ranges[static_cast<std::size_t>(i)];
      float* const values = BufferOf(worker, Buffer::kRounded);
      context_.kernels.widen(Advance(from, range.first * rows_.width), values,
                             range.rows * rows_.width);
      if (turn) turn(range, values, /*back=*/false);
      const BlockLayout layout = LayoutOf(range.rows);
      std::vector<float> block;
      ForTiles(layout, format_, [&](const BlockTile& tile) {
        block.clear();
        ForPlaces(layout, tile, [&](std::int64_t at) { block.push_back(values[at]); });
        scale.Observe(block, parts[static_cast<std::size_t>(i)]);
      });
    });
    if (IsShared(shared)) {
      for (const scaling::BlockRange& part : parts) total.Add(part);
      parts = parallel::GatherAll(*shared, total);
      total = {};
    }
    for (const scaling::BlockRange& part : parts) total.Add(part);
  }
  const int k = scale.adapts() ? scale.Choose(*operand_.adaptive, total) : 0;
  if (operand_.current != nullptr) operand_.current->scale = std::ldexp(1.0f, k);
  return k == 0 ? amax : scale.AmaxOf(k);
}

// Whatever looks at values around their rounding has them in fp32.
void BlockRounding::RoundInFp32(const RowRange& range, const std::vector<float>& given,
                                const BlockArgs& args, int worker, const Turn& turn,
                                RangeCounts* part) const {
  const std::int64_t values = range.rows * rows_.width;
  float* const rounded = BufferOf(worker, Buffer::kRounded);
  context_.kernels.widen(args.from, rounded, values);
  if (turn) turn(range, rounded, /*back=*/false);
  float* const before = BufferOf(worker, Buffer::kBefore);
  const std::vector<float> amaxes = AmaxesOf(range, rounded, given);
  BlockArgs own = args;
  own.from = own.to = {rounded, Storage::kF32};
  // Counts are of what the format as such does, with the tensor's scale in the values; where this
  // is left out of them (tensor_part), they are rounded once more without counts.
  if (part != nullptr || scales_ != nullptr) std::copy_n(rounded, values, before);
  if (scales_ != nullptr) {
    float* const scales = BufferOf(worker, Buffer::kScales);
    Scales(range, amaxes, before, scales);
    if (turn) turn(range, scales, /*back=*/true);
    std::copy_n(scales, values, scales_ + range.first * rows_.width);
  }
  if (part != nullptr) {
    own.tensor_part = 0;
    Round(range, amaxes, own);
    part->subnormal +=
        CountBlocks(grid_, format_, LayoutOf(range.rows), amaxes, before, rounded, part->counts);
    own.tensor_part = args.tensor_part;
    own.from = {before, Storage::kF32};
  }
  if (part == nullptr || own.tensor_part != 0) Round(range, amaxes, own);
  if (turn) turn(range, rounded, /*back=*/true);
  const NumberFormat& format = args.to.storage == Storage::kBF16 ? kBf16 : kFp32;
  context_.kernels.round(rounded, 1.0f, args.to, values, RoundOnly(format));
}

std::int64_t BlockRounding::Run(const Pass& pass, std::int64_t rows, float amax,
                                parallel::Communicator* shared, std::uint64_t first,
                                TensorSpan from, TensorSpan to, const Turn& turn) {
  const std::vector<RowRange> ranges = RangesOf(rows);
  const bool counts = operand_.block_counts != nullptr && FillsStats(pass, operand_.style);
  if (operand_.adaptive) amax = AdaptedAmax(ranges, amax, shared, from, turn);
  std::vector<float> given = {amax};
  if (format_.row_scaled && rows_.down) {
    given = ColumnAmaxes(ranges, rows, from);
    if (IsShared(shared)) LargestOfAll(*shared, given);
  }
  std::vector<RangeCounts> parts(counts ? ranges.size() : 0);
  const bool in_fp32 =
      counts || turn || scales_ != nullptr || format_.row_scaled || !IsVectorized(grid_);
  BlockArgs args;
  args.format = format_, args.bf16_input = bf16_;
  if (LeavesFactor(format_)) {
    const SplitScale scale = SplitTensorScale(grid_, amax);
    args.tensor_part = scale.of_values, factor_ = scale.of_sums;
  }
  args.stochastic = operand_.style.stochastic && pass.training;
  args.key = pass.seed ^ operand_.style.stream, args.draw = pass.draw;
  context_.pool.For(std::ssize(ranges), [&](std::int64_t i, int worker) {
    const RowRange& range = ranges[static_cast<std::size_t>(i)];
    const std::int64_t begin = range.first * rows_.width;
    BlockArgs own = args;
    own.from = Advance(from, begin), own.to = Advance(to, begin);
    own.first = first + static_cast<std::uint64_t>(begin);
    if (in_fp32)
      RoundInFp32(range, given, own, worker, turn,
                  counts ? &parts[static_cast<std::size_t>(i)] : nullptr);
    else
      Round(range, given, own);
  });
  if (!counts) return 0;
  RangeCounts total;
  for (const RangeCounts& part : parts) {
    total.counts.Add(part.counts);
    total.subnormal += part.subnormal;
  }
  *operand_.block_counts = total.counts;
  return total.subnormal;
}

}  // namespace ada::backend::cpu
