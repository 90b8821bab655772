// Rounding of scores by blocks. Counts are of all [queries, keys] of a head, though a block holds
// fewer columns where a causal mask hides the others, and more where its rows are padded: AddZeros
// makes up for the difference.
#include "backend/cpu/ops/attention_scores.h"

#include <algorithm>
#include <cstring>
#include <tuple>
#include <vector>

#include "backend/cpu/rounding/rounding_stats.h"
#include "backend/cpu/rounding/rule_inputs.h"
#include "backend/cpu/value_kernels.h"

namespace ada::backend::cpu {

namespace {

std::size_t RowBytes(std::int64_t values) {
  return static_cast<std::size_t>(values) * sizeof(float);
}

// Adds (or subtracts) a count of zeros for values that are not in memory.
void AddZeros(const Rounding& rounding, std::int64_t zeros) {
  if (rounding.stats == nullptr) return;
  BlockStats& stats = *rounding.stats;
  stats.values += zeros;
  if (rounding.count) stats.zeros += zeros, stats.below_min += zeros;
  if (rounding.count && rounding.format.is_signed) stats.zeros_after += zeros;
  if (rounding.bins != nullptr) rounding.bins->zeros += static_cast<std::uint32_t>(zeros);
  stats.rounded_min = std::min(stats.rounded_min, 0.0f);
  stats.rounded_max = std::max(stats.rounded_max, 0.0f);
}

}  // namespace

Tensor ScoreBlocks(const AttentionSizes& sizes, std::int64_t images, const NumberFormat& format) {
  // A tensor without data is an empty one to RoundingStats; nobody reads this address.
  static std::byte nothing;
  Tensor tensor;
  tensor.shape = {images * sizes.heads * sizes.blocks(), 1, 1, AttentionSizes::kRows * sizes.keys};
  tensor.format = format;
  tensor.data = &nothing;
  return tensor;
}

Pass ScoreRounding::PassOfBlocks(const Pass& pass) const {
  Pass blocks = pass;
  const std::int64_t each = sizes_.heads * sizes_.blocks();
  blocks.rows = static_cast<int>(pass.rows * each);
  blocks.first_row = pass.first_row * each;
  return blocks;
}

// The number of the block's first value among [images, heads, queries, keys].
// Random words go by it, and `first_row` makes it that of the whole batch in every process.
std::int64_t ScoreRounding::FirstValue(const Pass& pass, const QueryBlock& block) const {
  const std::int64_t head = (pass.first_row + block.image) * sizes_.heads + block.head;
  return (head * sizes_.queries + block.first) * sizes_.keys;
}

// Where a block sees all keys, its random words follow one another from row to row: rows are then
// brought together, so that all words are made at once.
void ScoreRounding::Drop(const Pass& pass, const QueryBlock& block, const float* in,
                         float* out) const {
  const auto fill = std::get<FillKernels<DropoutSpec>>(ValueKernelsOf(context_.kernels)).y;
  const bool together = block.seen == sizes_.keys;
  const std::int64_t rows = together ? block.rows : 1, row_values = block.seen;
  const std::int64_t first = FirstValue(pass, block);
  for (std::int64_t begin = 0; begin < block.rows; begin += rows) {
    FillArgs a;
    a.out = out + begin * block.width, a.values = rows * row_values;
    a.random = {pass.seed ^ stream_, pass.draw, first + begin * sizes_.keys};
    for (std::int64_t r = 0; r < rows; ++r)
      std::memmove(a.out + r * row_values, in + (begin + r) * block.width, RowBytes(row_values));
    fill(Keeping(dropout_, stream_), a);
    for (std::int64_t r = rows - 1; r >= 0; --r) {
      float* const row = a.out + r * block.width;
      std::memmove(row, a.out + r * row_values, RowBytes(row_values));
      std::fill(row + row_values, row + block.width, 0.0f);
    }
  }
}

void ScoreRounding::Round(const Pass& pass, const QueryBlock& block, const float* in, float factor,
                          float* out, RoundingStats& stats, bool counts) const {
  const std::int64_t number =
      (block.image * sizes_.heads + block.head) * sizes_.blocks() + block.index;
  Rounding rounding = stats.For(pass, number);
  if (!counts)
    rounding.count = rounding.moments = false, rounding.stats = nullptr, rounding.bins = nullptr;
  if (rounding.stochastic) return RoundRows(pass, block, in, factor, out, rounding);
  // To nearest a zero of the padding stays a zero whatever its place, so whole rows are rounded in
  // one call and the number of zeros is put right afterwards.
  context_.kernels.round(in, factor, {out, Storage::kF32}, block.rows * block.width, rounding);
  AddZeros(rounding, block.rows * (sizes_.keys - block.width));
}

// For stochastic rounding each value uses the random word of its position in [queries, keys].
void ScoreRounding::RoundRows(const Pass& pass, const QueryBlock& block, const float* in,
                              float factor, float* out, Rounding rounding) const {
  rounding.first = static_cast<std::uint64_t>(FirstValue(pass, block));
  std::vector<float> whole(static_cast<std::size_t>(block.rows * sizes_.keys));
  for (std::int64_t r = 0; r < block.rows; ++r)
    std::copy_n(in + r * block.width, block.seen, whole.data() + r * sizes_.keys);
  context_.kernels.round(whole.data(), factor, {whole.data(), Storage::kF32},
                         block.rows * sizes_.keys, rounding);
  for (std::int64_t r = 0; r < block.rows; ++r) {
    std::copy_n(whole.data() + r * sizes_.keys, block.seen, out + r * block.width);
    std::fill(out + r * block.width + block.seen, out + (r + 1) * block.width, 0.0f);
  }
}

TensorMoments MomentsOfPart(const Context& context, const Tensor& tensor, std::int64_t first,
                            std::int64_t channels, int rows) {
  const std::int64_t positions = tensor.shape.h * tensor.shape.w;
  const std::int64_t per_image = (positions + kMomentPositions - 1) / kMomentPositions;
  std::vector<BlockStats> blocks(static_cast<std::size_t>(rows * per_image));
  context.pool.For(rows * per_image, [&](std::int64_t i, int worker) {
    const std::int64_t begin = i % per_image * kMomentPositions;
    const std::int64_t count = std::min(kMomentPositions, positions - begin);
    auto* values = reinterpret_cast<float*>(context.scratch.worker(worker));
    for (std::int64_t t = 0; t < count; ++t)
      context.kernels.widen(
          Advance(At(tensor, i / per_image), (begin + t) * tensor.shape.c + first),
          values + t * channels, channels);
    Rounding rounding;
    rounding.moments = true;
    rounding.stats = &blocks[static_cast<std::size_t>(i)];
    context.kernels.inspect({values, Storage::kF32}, count * channels, rounding);
  });
  const TensorMoments mine = MergeMoments(blocks.data(), static_cast<std::int64_t>(blocks.size()));
  return MomentsOfAll(context, mine, rows * positions * channels);
}

}  // namespace ada::backend::cpu
