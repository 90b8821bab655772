// Each matrix is gathered without its padding, rounded, and spread again.
#include "backend/cpu/ops/head_operands.h"

#include <algorithm>

#include "backend/cpu/block_kernels.h"
#include "backend/cpu/matmul/pack/batch_operands.h"
#include "backend/cpu/matmul/pack/block_rounding.h"
#include "backend/cpu/matmul/pack/operand_steps.h"
#include "backend/decisions.h"
#include "number/blocks/block_counts_inline.h"
#include "number/number_grid.h"
#include "number/tensor.h"

namespace ada::backend::cpu {
namespace {

// A product sums over the rows of these matrices, and over the columns of the others.
bool SumsOverRows(AttentionOperand operand) {
  using enum AttentionOperand;
  return operand == kYV || operand == kDvP || operand == kDvDy || operand == kDqK ||
         operand == kDkDs || operand == kDkQ;
}

bool IsBf16(const AttentionSpec& spec, AttentionTensor tensor) {
  const auto stored = [](const Tensor& of) { return IsKeptInBf16(of.format, of.storage); };
  const auto rounded = [](bool rounds, const NumberFormat& format, const RoundingStyle& style) {
    return rounds && style.per_tensor_scale == nullptr && HasValuesOf(kBf16, format);
  };
  switch (tensor) {
    case AttentionTensor::kQ:
      return stored(spec.x[0]);
    case AttentionTensor::kP:
      return rounded(spec.rounds_p, spec.p_format, spec.p_style);
    case AttentionTensor::kDs:
      return rounded(spec.rounds_ds, spec.ds_format, spec.ds_style);
    case AttentionTensor::kDy:
      return stored(spec.dy.tensor);
    default:
      return stored(spec.x.back());  // keys and values have one storage
  }
}

// The values of one matrix, for statistics by head; it has no memory.
Tensor MatricesOf(const AttentionSpec& spec, const AttentionSizes& sizes, AttentionTensor tensor,
                  std::int64_t heads) {
  static std::byte nothing;
  const bool of_keys = tensor == AttentionTensor::kK || tensor == AttentionTensor::kV;
  const bool scores = tensor == AttentionTensor::kP || tensor == AttentionTensor::kDs;
  Tensor matrices;
  matrices.shape = {spec.y.shape.n * heads, 1, of_keys ? sizes.keys : sizes.queries,
                    scores ? sizes.keys : sizes.width};
  matrices.data = &nothing;
  return matrices;
}

// The same matrix without its padding, in `to`.
HeadMatrix Flat(const HeadMatrix& from, float* to) {
  for (std::int64_t row = 0; row < from.rows; ++row)
    std::copy_n(from.values + row * from.step, from.columns, to + row * from.columns);
  return {to, from.rows, from.columns, from.columns};
}

}  // namespace

HeadOperands::HeadOperands(const Context& context, const AttentionSpec& spec,
                           const AttentionSizes& sizes)
    : context_(context), judged_(spec.judged_operands), any_(AnyRounds(spec.attention_operands)) {
  for (std::size_t i = 0; i < kAttentionOperands; ++i) {
    const auto operand = static_cast<AttentionOperand>(i);
    const AttentionTensor tensor = TensorOf(operand);
    One& one = all_[i];
    one.rounding = spec.attention_operands[i];
    const bool of_keys = tensor == AttentionTensor::kK || tensor == AttentionTensor::kV;
    one.heads = of_keys ? sizes.kv_heads : sizes.heads;
    one.down = SumsOverRows(operand);
    one.bf16 = IsBf16(spec, tensor);
    one.judged.resize(static_cast<std::size_t>(spec.y.shape.n * one.heads) * judged_.size());
    if (!one.rounding.rounds) continue;
    one.lines = KeepsLines(spec, operand);
    one.codes = AddsCodes(spec, operand) && (!one.rounding.block || one.lines);
    Gradient rounded;
    rounded.tensor = MatricesOf(spec, sizes, tensor, one.heads);
    rounded.tensor.format = one.rounding.block ? kFp32 : one.rounding.format;
    rounded.stats = one.rounding.stats, rounded.style = one.rounding.style;
    if (tensor == AttentionTensor::kDy) rounded.scale = spec.dy.scale;
    if (tensor == AttentionTensor::kDs) rounded.scale = spec.ds_scale;
    if (one.rounding.block) {
      rounded.style.stochastic = false;  // of the blocks' elements alone
      one.grid = BlockGridOf(*one.rounding.block, one.bf16);
      one.parts.resize(static_cast<std::size_t>(rounded.tensor.shape.n));
    }
    one.stats = rounded.stats != nullptr
                    ? RoundingStats(rounded, 1)
                    : RoundingStats(rounded.tensor, rounded.style, nullptr, nullptr, 1);
  }
}

bool HeadOperands::AsksLargest(const Pass& pass, AttentionOperand operand) const {
  const auto asks = [](const BlockFormat& format) {
    return format.tensor_scale && !format.row_scaled;
  };
  if (Judges(pass) && std::any_of(judged_.begin(), judged_.end(),
                                  [&](const auto& judged) { return asks(judged.format); }))
    return true;
  const OperandRounding& rounding = Of(operand).rounding;
  return rounding.rounds &&
         (rounding.current != nullptr || (rounding.block && asks(*rounding.block)));
}

void HeadOperands::SetLargest(AttentionOperand operand, float largest) {
  One& one = all_[IndexOf(operand)];
  one.largest = largest;
  if (one.lines && one.rounding.block && BlockRounding::LeavesFactor(*one.rounding.block)) {
    const SplitScale scale = SplitTensorScale(one.grid, largest);
    one.tensor_part = one.codes ? scale.of_values : 0, one.factor = scale.of_sums;
  }
  if (one.rounding.current != nullptr)
    one.rounding.current->scale = scaling::CurrentScale(one.rounding.rule, largest);
}

// Heads as the images of MatricesOf.
Pass HeadOperands::PassOfHeads(const Pass& pass, const One& one) const {
  Pass heads = pass;
  heads.rows = static_cast<int>(pass.rows * one.heads);
  heads.first_row = pass.first_row * one.heads;
  return heads;
}

void HeadOperands::RoundRows(const One& one, const Rounding& rounding, const HeadMatrix& flat,
                             float* to, float* memory, float* lines) const {
  const std::int64_t count = one.down ? flat.columns : flat.rows, n = flat.rows * flat.columns;
  const auto line = [&](std::int64_t i) { return one.down ? i % flat.columns : i / flat.columns; };
  std::vector<float> largest(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < n; ++i) {
    float& most = largest[static_cast<std::size_t>(line(i))];
    most = OfBits(std::max(BitsOf(most), MagnitudeBits(flat.values[i])));
  }
  std::vector<scaling::RowScale> scales;
  for (const float most : largest)
    scales.push_back(scaling::RowScaleOf(one.rounding.rule, most, one.bf16));
  float *encodes = memory, *decodes = memory + n;
  for (std::int64_t i = 0; i < n; ++i) {
    const scaling::RowScale& scale = scales[static_cast<std::size_t>(line(i))];
    encodes[i] = scale.encode, decodes[i] = scale.decode;
  }
  RowScales::RoundEach(context_.kernels, one.rounding.rule, encodes, decodes, n, flat.values,
                       rounding, to);
  if (one.codes) context_.kernels.multiply(to, encodes, to, n);
  for (std::int64_t i = 0; one.lines && i < count; ++i)
    lines[i] = scales[static_cast<std::size_t>(i)].decode;
}

// Values become codes where an accumulator adds these.
void HeadOperands::KeepBlockScales(const One& one, const BlockLayout& layout,
                                   const HeadMatrix& flat, float* to, const Lines& lines) const {
  const BlockFormat& format = *one.rounding.block;
  if (format.scale != BlockScale::kFp32) {
    std::fill_n(lines.factors, one.down ? flat.columns : flat.rows, one.factor);
    return;
  }
  const TensorFactor tensor = TensorFactorOf(one.grid, one.largest);
  ForTiles(layout, format, [&](const BlockTile& tile) {
    std::uint32_t largest = 0;
    ForPlaces(layout, tile, [&](std::int64_t at) {
      largest = std::max(largest, MagnitudeBits(flat.values[at]));
    });
    const float decode = BlockFactorOf(one.grid, tensor, OfBits(largest)).decode;
    ForPlaces(layout, tile, [&](std::int64_t at) {
      const std::int64_t row = at / flat.columns, column = at % flat.columns;
      const std::int64_t line = one.down ? column : row, term = one.down ? row : column;
      lines.factors[term / format.block * lines.step + line] = decode;
      if (one.codes) to[at] = decode != 0 ? to[at] / decode : 0.0f;
    });
  });
  if (one.codes)
    context_.kernels.round(to, 1.0f, {to, Storage::kF32}, flat.rows * flat.columns,
                           RoundOnly(format.element));
}

BlockLayout HeadOperands::LayoutOf(const One& one, const BlockFormat& format,
                                   const HeadMatrix& flat) {
  if (one.down && !format.square) return {flat.columns, 1, flat.rows, 1, 0, flat.columns};
  return {1, flat.rows, flat.columns, flat.columns, flat.columns, 1};
}

std::vector<float> HeadOperands::AmaxesOf(const One& one, const BlockFormat& format,
                                          const BlockLayout& layout, const HeadMatrix& flat) {
  return format.row_scaled ? RowAmaxesOf(layout, flat.values) : std::vector<float>{one.largest};
}

void HeadOperands::Judge(AttentionOperand operand, std::int64_t image, std::int64_t head,
                         const HeadMatrix& from, float* memory) {
  One& one = all_[IndexOf(operand)];
  const std::int64_t n = from.rows * from.columns, number = image * one.heads + head;
  float* const rounded = memory + AttentionSizes::Padded(n);
  const HeadMatrix flat = Flat(from, memory);
  const BlockKernels& kernels = BlockKernelsOf(context_.kernels);
  for (std::size_t i = 0; i < judged_.size(); ++i) {
    BlockArgs args;
    args.format = judged_[i].format, args.bf16_input = one.bf16;
    args.layout = LayoutOf(one, args.format, flat);
    args.from = args.to = {rounded, Storage::kF32};
    const BlockGrid grid = BlockGridOf(args.format, one.bf16);
    const std::vector<float> amaxes = AmaxesOf(one, args.format, args.layout, flat);
    std::copy_n(flat.values, n, rounded);
    RoundBlocks(kernels, grid, amaxes, args);
    BlockCounts& counts = one.judged[static_cast<std::size_t>(number) * judged_.size() + i];
    counts = BlockCounts();
    CountBlocks(grid, args.format, args.layout, amaxes, flat.values, rounded, counts);
  }
}

void HeadOperands::FinishJudged(const Pass& pass, std::size_t operand) {
  const One& one = all_[operand];
  for (std::size_t i = 0; i < judged_.size(); ++i) {
    BlockCounts& total = judged_[i].counts[operand] = BlockCounts();
    for (std::int64_t head = 0; head < pass.rows * one.heads; ++head)
      total.Add(one.judged[static_cast<std::size_t>(head) * judged_.size() + i]);
  }
}

void HeadOperands::RoundInBlocks(const Pass& pass, One& one, std::int64_t number,
                                 const HeadMatrix& flat, float* to, const Lines& lines,
                                 bool counts) {
  const BlockFormat& format = *one.rounding.block;
  const std::int64_t n = flat.rows * flat.columns;
  const Pass heads = PassOfHeads(pass, one);
  const TensorSpan values{const_cast<float*>(flat.values), Storage::kF32};
  if (counts && CountsBlocks(pass, one.rounding))
    context_.kernels.inspect(values, n, one.stats.For(heads, number));
  BlockArgs args;
  args.layout = LayoutOf(one, format, flat);
  const std::vector<float> amaxes = AmaxesOf(one, format, args.layout, flat);
  std::copy_n(flat.values, n, to);
  args.from = args.to = {to, Storage::kF32};
  args.format = format, args.bf16_input = one.bf16;
  args.stochastic = one.rounding.style.stochastic && pass.training;
  args.key = pass.seed ^ one.rounding.style.stream, args.draw = pass.draw;
  args.first = static_cast<std::uint64_t>((heads.first_row + number) * n);
  const BlockKernels& kernels = BlockKernelsOf(context_.kernels);
  RoundBlocks(kernels, one.grid, amaxes, args);
  // Counts are of values with all of their scale.
  if (counts && one.rounding.block_counts != nullptr && FillsStats(pass, one.rounding.style)) {
    Part& part = one.parts[static_cast<std::size_t>(number)];
    part = Part();
    part.subnormal =
        CountBlocks(one.grid, format, args.layout, amaxes, flat.values, to, part.counts);
  }
  if (!one.lines) return;
  if (one.tensor_part != 0) {
    std::copy_n(flat.values, n, to);
    args.tensor_part = one.tensor_part;
    RoundBlocks(kernels, one.grid, amaxes, args);
  }
  KeepBlockScales(one, args.layout, flat, to, lines);
}

void HeadOperands::Round(const Pass& pass, AttentionOperand operand, std::int64_t image,
                         std::int64_t head, const HeadMatrix& from, float* to, float* memory,
                         const Lines& lines, bool counts) {
  One& one = all_[IndexOf(operand)];
  const std::int64_t n = from.rows * from.columns, number = image * one.heads + head;
  const std::int64_t part = AttentionSizes::Padded(n);
  float* const rounded = memory + part;
  const HeadMatrix matrix = Flat(from, memory);
  if (one.rounding.block) {
    RoundInBlocks(pass, one, number, matrix, rounded, lines, counts);
  } else {
    Rounding rounding = one.stats.For(PassOfHeads(pass, one), number);
    if (!counts)
      rounding.count = rounding.moments = false, rounding.stats = nullptr, rounding.bins = nullptr;
    const TensorSpan out{rounded, Storage::kF32};
    if (one.rounding.row_scaled)
      RoundRows(one, rounding, matrix, rounded, memory + 2 * part, lines.factors);
    else
      context_.kernels.round(matrix.values, 1.0f, out, n, rounding);
    // What comes back from a division is a code but for fp32's rounding.
    const float scale = one.rounding.style.per_tensor_scale != nullptr
                            ? one.rounding.style.per_tensor_scale->scale
                            : 1;
    if (one.codes) context_.kernels.round(rounded, scale, out, n, RoundOnly(one.rounding.format));
  }
  for (std::int64_t row = 0; row < from.rows; ++row) {
    float* const line = to + row * from.step;
    std::copy_n(rounded + row * from.columns, from.columns, line);
    std::fill(line + from.columns, line + from.step, 0.0f);
  }
}

void HeadOperands::Finish(const Pass& pass, One& one) {
  if (!one.rounding.rounds) return;
  const Pass heads = PassOfHeads(pass, one);
  if (!one.rounding.block) return one.stats.Finish(heads);
  const bool counts = CountsBlocks(pass, one.rounding);
  if (counts) one.stats.Finish(heads);
  Part total;
  if (one.rounding.block_counts != nullptr && FillsStats(pass, one.rounding.style)) {
    for (int i = 0; i < heads.rows; ++i) {
      const Part& part = one.parts[static_cast<std::size_t>(i)];
      total.counts.Add(part.counts), total.subnormal += part.subnormal;
    }
    *one.rounding.block_counts = total.counts;
  }
  TakeBlockCounts(one.rounding, counts, total.subnormal);
}

}  // namespace ada::backend::cpu
