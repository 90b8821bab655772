// Each matmul of a head is rows times columns, which the kernel adds as the accumulator does.
#include "backend/cpu/ops/accumulated_head.h"

#include <algorithm>
#include <cmath>

#include "backend/cpu/matmul/pack/block_rounding.h"
#include "backend/cpu/rounding/rounding_stats.h"
#include "error.h"
#include "number/number_grid.h"

namespace ada::backend::cpu {
namespace {

using scaling::AccumulatorCounts;
using scaling::LayerMatmul;

// How a tensor is stored: its codes are values times its per-tensor scale, where it has one.
struct StoredCodes {
  NumberFormat format;
  const scaling::TensorScaler* scale;
};

StoredCodes StoredOf(const AttentionSpec& spec, AttentionTensor tensor) {
  const auto input = [&](std::size_t of_three) {
    const std::size_t i = spec.fused() ? 0 : of_three;
    return StoredCodes{spec.x[i].format, spec.x_per_tensor_scales[i]};
  };
  const auto within = [](bool rounds, const NumberFormat& format, const RoundingStyle& style) {
    return rounds ? StoredCodes{format, style.per_tensor_scale} : StoredCodes{kFp32, nullptr};
  };
  switch (tensor) {
    case AttentionTensor::kQ:
      return input(0);
    case AttentionTensor::kK:
      return input(1);
    case AttentionTensor::kV:
      return input(2);
    case AttentionTensor::kP:
      return within(spec.rounds_p, spec.p_format, spec.p_style);
    case AttentionTensor::kDy:
      return {spec.dy.tensor.format, spec.dy.style.per_tensor_scale};
    case AttentionTensor::kDs:
      return within(spec.rounds_ds, spec.ds_format, spec.ds_style);
  }
  throw InternalError("a tensor that is none of attention's");
}

}  // namespace

namespace {

const MatmulSums& SumsOf(const AttentionSpec& spec, AttentionOperand operand) {
  const LayerMatmul matmul =
      IndexOf(operand) < IndexOf(AttentionOperand::kDvP) ? LayerMatmul::kForward : LayerMatmul::kDx;
  return spec.sums[scaling::IndexOf(matmul)];
}

}  // namespace

bool AddsCodes(const AttentionSpec& spec, AttentionOperand operand) {
  return SumsOf(spec, operand).rule.has_value();
}

std::int64_t BlockOfLines(const AttentionSpec& spec, AttentionOperand operand) {
  const OperandRounding& rounding = spec.attention_operands[IndexOf(operand)];
  const bool fp32 = rounding.rounds && rounding.block && rounding.block->scale == BlockScale::kFp32;
  return fp32 ? rounding.block->block : 0;
}

bool KeepsLines(const AttentionSpec& spec, AttentionOperand operand) {
  const OperandRounding& rounding = spec.attention_operands[IndexOf(operand)];
  if (!rounding.rounds || (!AddsCodes(spec, operand) && SumsOf(spec, operand).judged.empty()))
    return false;
  if (!rounding.block) return rounding.row_scaled;
  return BlockOfLines(spec, operand) != 0 || BlockRounding::LeavesFactor(*rounding.block);
}

// Decoded values of blocks are numbers of bf16 where their scales are powers of two or fp8 numbers.
HeadSums::Codes HeadSums::CodesOf(const AttentionSpec& spec, AttentionOperand operand,
                                  bool judges) {
  const OperandRounding& rounding = spec.attention_operands[IndexOf(operand)];
  Codes codes;
  const StoredCodes stored = StoredOf(spec, TensorOf(operand));
  codes.format = stored.format;
  if (!rounding.rounds) codes.scale = stored.scale;
  if (rounding.rounds && rounding.block) {
    const BlockFormat& block = *rounding.block;
    codes.block = BlockOfLines(spec, operand);
    const bool left = block.tensor_scale && !BlockRounding::LeavesFactor(block);
    if ((judges || AddsCodes(spec, operand)) && (block.row_scaled || left))
      throw ConfigError("precision.accumulate: layer " + spec.layer + ": " + NameOf(operand) +
                        " is in " + FormatName(AnyFormat(block)) +
                        ", whose rows or tensors have scales that are no powers of two; an "
                        "accumulator adds codes, and of such blocks these are not kept");
    codes.format = codes.block != 0 ? block.element : kBf16;
  } else if (rounding.rounds) {
    codes.format = rounding.format, codes.scale = rounding.style.per_tensor_scale;
  }
  codes.least = std::max(LowestExponentOf(codes.format), -126);
  codes.digits = codes.format.mantissa_bits + 1;
  codes.lines = codes.block != 0 || (rounding.rounds && !rounding.block && rounding.row_scaled);
  codes.given = (rounding.rounds && AddsCodes(spec, operand)) ||
                (codes.scale == nullptr && !KeepsLines(spec, operand));
  return codes;
}

HeadSums::Factor HeadSums::FactorOf(AttentionOperand a, AttentionOperand b, std::int64_t first,
                                    std::int64_t block, const SumMemory& m) const {
  const auto inverse = [](const Codes& of) {
    return of.scale != nullptr ? 1 / of.scale->scale : 1.0f;
  };
  const auto lines = [&](AttentionOperand of) {
    const float* const all = m.lines[IndexOf(of)];
    return all != nullptr && Of(of).block != 0 ? all + block * m.lines_step : all;
  };
  const float* const rows = lines(a);
  return {inverse(Of(a)) * inverse(Of(b)), rows != nullptr ? rows + first : nullptr, lines(b)};
}

HeadSums::HeadSums(const Context& context, const AttentionSpec& spec, const Sizes& sizes,
                   int judged)
    : round_(context.kernels),
      kernels_(AccumulateKernelsOf(context.kernels)),
      sums_(spec.sums),
      sizes_(sizes),
      judges_(judged >= 0) {
  for (MatmulSums& of : sums_) {
    const auto rule = static_cast<std::size_t>(judged);
    if (judges_)
      of.rule = rule < of.judged.size() ? std::optional(of.judged[rule].rule) : std::nullopt;
  }
  for (std::size_t i = 0; i < kAttentionOperands; ++i) {
    codes_[i] = CodesOf(spec, static_cast<AttentionOperand>(i), judges_);
    converts_ = converts_ || !codes_[i].given;
  }
  for (std::size_t i = 0; any() && i < kAttentionOperands; i += 2) {
    const std::int64_t a = codes_[i].block, b = codes_[i + 1].block;
    if (a != 0 && b != 0 && a != b)
      throw ConfigError("precision.accumulate: layer " + spec.layer + ": " +
                        NameOf(static_cast<AttentionOperand>(i)) + " has blocks of " +
                        std::to_string(a) + " values and " +
                        NameOf(static_cast<AttentionOperand>(i + 1)) + " of " + std::to_string(b) +
                        "; codes of both are added block by block");
  }
  counts_ = judges_ || std::any_of(sums_.begin(), sums_.end(),
                                   [](const MatmulSums& of) { return of.counts != nullptr; });
  const auto& dx = sums_[scaling::IndexOf(LayerMatmul::kDx)].rule;
  if (dx && sizes.block_rows % dx->group != 0)
    throw ConfigError("precision.accumulate: layer " + spec.layer + ": dx takes " +
                      std::to_string(dx->group) +
                      " products at once; attention's queries come in blocks of " +
                      std::to_string(sizes.block_rows) + ", which `group` has to divide");
}

std::size_t HeadSums::bytes() const {
  const std::size_t sum = 2 * sizeof(float) + (counts_ ? 4 * sizeof(double) : 0);
  const auto sums = [&](std::int64_t rows, std::int64_t columns) {
    return WholeLines(static_cast<std::size_t>(rows * columns) * sum) + 64;
  };
  const auto floats = [](std::int64_t values) {
    return WholeLines(static_cast<std::size_t>(values) * sizeof(float));
  };
  return WholeLines(static_cast<std::size_t>(sizes_.a) * 2) +
         WholeLines(static_cast<std::size_t>(sizes_.b) * 2) + sums(sizes_.block_rows, kPanel) +
         2 * sums(sizes_.keys, sizes_.columns) +
         (converts_ ? floats(sizes_.a) + floats(sizes_.b) : 0) +
         (judges_ ? floats(std::max(sizes_.a, sizes_.b)) : 0);
}

RunningSums HeadSums::CutSums(std::byte*& memory, std::int64_t rows, std::int64_t columns) const {
  const std::int64_t values = rows * columns;
  RunningSums sums{};
  if (counts_) {
    sums.exact = reinterpret_cast<double*>(memory), sums.magnitudes = sums.exact + values;
    sums.exact_total = sums.magnitudes + values, sums.magnitude_total = sums.exact_total + values;
    memory += static_cast<std::size_t>(4 * values) * sizeof(double);
  }
  sums.part = reinterpret_cast<float*>(memory), sums.main = sums.part + values;
  memory += WholeLines(static_cast<std::size_t>(2 * values) * sizeof(float));
  return sums;
}

SumMemory HeadSums::Cut(std::byte* memory) const {
  SumMemory m;
  const auto take = [&memory]<class Value>(Value*& part, std::int64_t values) {
    part = reinterpret_cast<Value*>(memory);
    memory += WholeLines(static_cast<std::size_t>(values) * sizeof(Value));
  };
  take(m.a_exponents, sizes_.a), take(m.b_exponents, sizes_.b);
  m.once = CutSums(memory, sizes_.block_rows, kPanel);
  m.dk = CutSums(memory, sizes_.keys, sizes_.columns);
  m.dv = CutSums(memory, sizes_.keys, sizes_.columns);
  if (converts_) take(m.a_codes, sizes_.a), take(m.b_codes, sizes_.b);
  if (judges_) take(m.sink, std::max(sizes_.a, sizes_.b));
  return m;
}

void HeadSums::Begin(const RunningSums& running, std::int64_t values) const {
  std::fill_n(running.part, values, 0.0f);
  std::fill_n(running.main, values, 0.0f);
  if (!counts_) return;
  for (double* const sums :
       {running.exact, running.magnitudes, running.exact_total, running.magnitude_total})
    std::fill_n(sums, values, 0.0);
}

// Where values are given, those without their scale, as the operand's format has them.
const float* HeadSums::CodesIn(AttentionOperand operand, const float* values, const Lines& lines,
                               const SumMemory& m, float* to) const {
  const Codes& of = Of(operand);
  if (of.given) return values;
  const float* const factors = m.lines[IndexOf(operand)];
  for (std::int64_t line = 0; line < lines.count; ++line) {
    float* const codes = to + line * lines.step;
    for (std::int64_t i = 0; i < lines.values; ++i) {
      const float value = values[line * lines.step + i];
      codes[i] = value;
      if (factors == nullptr || value == 0) continue;
      const std::int64_t row = lines.first_row + (lines.terms ? i : line);
      const std::int64_t term = lines.first_term + (lines.terms ? line : i);
      codes[i] = value / factors[(of.block != 0 ? term / of.block * m.lines_step : 0) + row];
    }
    round_.round(codes, of.scale != nullptr ? of.scale->scale : 1.0f, {codes, Storage::kF32},
                 lines.values, RoundOnly(of.format));
  }
  return to;
}

// The exponents of both matrices, as they lie: rows of a that are its columns are lines of memory.
AccumulateArgs HeadSums::Describe(const scaling::Accumulator& rule, AttentionOperand a,
                                  AttentionOperand b, const MatrixArgs& args,
                                  std::int64_t first_row, std::int64_t first,
                                  const SumMemory& m) const {
  const bool turned = args.a_term != 1;
  const Lines of_a = {turned ? args.terms : args.rows,
                      turned ? args.rows : args.terms,
                      turned ? args.a_term : args.a_row,
                      turned,
                      first_row,
                      first};
  const Lines of_b = {args.terms, args.columns, args.b_term, true, 0, first};
  AccumulateArgs all;
  all.a = CodesIn(a, args.a, of_a, m, m.a_codes), all.b = CodesIn(b, args.b, of_b, m, m.b_codes);
  const auto exponents = [&](const float* values, const Lines& lines, int least, std::int16_t* to) {
    int largest = kExponentOfZero;
    for (std::int64_t line = 0; line < lines.count; ++line)
      largest = std::max(largest, kernels_.exponents(values + line * lines.step, lines.values,
                                                     least, to + line * lines.step));
    return largest;
  };
  const int largest_a = exponents(all.a, of_a, Of(a).least, m.a_exponents);
  const int largest_b = exponents(all.b, of_b, Of(b).least, m.b_exponents);
  all.rule = rule;
  all.a_exponents = m.a_exponents, all.b_exponents = m.b_exponents;
  all.a_row = args.a_row, all.a_step = args.a_term, all.b_step = args.b_term;
  all.rows = args.rows, all.k = args.terms;
  const std::int64_t length = first + args.terms;
  const int bits = length > 1 ? 64 - __builtin_clzll(static_cast<unsigned long long>(length)) : 0;
  all.vectors = Of(a).digits + Of(b).digits <= 24 && largest_a < 128 && largest_b < 128 &&
                largest_a + largest_b + 2 + bits <= 124;
  return all;
}

AccumulateArgs HeadSums::PanelOf(const AccumulateArgs& all, const RunningSums& running,
                                 std::int64_t panel, std::int64_t rows,
                                 AccumulatorCounts* counts) const {
  AccumulateArgs args = all;
  args.b += panel * kPanel, args.b_exponents += panel * kPanel;
  const std::int64_t at = panel * rows * kPanel;
  args.part = running.part + at, args.main = running.main + at;
  if (counts == nullptr) return args;
  args.exact = running.exact + at, args.magnitudes = running.magnitudes + at;
  args.counts = counts;
  return args;
}

// A part ends with its block, and where it is promoted: main = fma(part, scales, main).
void HeadSums::AddPanel(AttentionOperand a, AttentionOperand b, const AccumulateArgs& panel,
                        std::int64_t first_row, std::int64_t first_column, std::int64_t first,
                        bool last, const RunningSums& running, std::int64_t at,
                        const SumMemory& m) const {
  const std::int64_t block = BlockOf(a, b), end = first + panel.k, promote = panel.rule.promote;
  if (block == 0) return kernels_.accumulate(panel);
  for (std::int64_t begin = first, next = 0; begin < end; begin = next) {
    next = std::min(end, (begin / block + 1) * block);
    if (promote > 0) next = std::min(next, (begin / promote + 1) * promote);
    AccumulateArgs piece = panel;
    const std::int64_t skipped = begin - first;
    piece.rule.promote = 0, piece.first = 0, piece.k = next - begin;
    piece.a += skipped * piece.a_step, piece.a_exponents += skipped * piece.a_step;
    piece.b += skipped * piece.b_step, piece.b_exponents += skipped * piece.b_step;
    kernels_.accumulate(piece);
    const bool ends = next % block == 0 || (promote > 0 && next % promote == 0);
    if (!ends && !(last && next == end)) continue;
    const Factor factor = FactorOf(a, b, first_row, begin / block, m);
    for (std::int64_t i = 0; i < panel.rows * kPanel; ++i) {
      const float by = factor.At(i / kPanel, first_column + i % kPanel);
      panel.main[i] = std::fma(panel.part[i], by, panel.main[i]);
      panel.part[i] = 0;
      if (panel.counts == nullptr) continue;
      running.exact_total[at + i] += panel.exact[i] * static_cast<double>(by);
      running.magnitude_total[at + i] += panel.magnitudes[i] * std::abs(static_cast<double>(by));
      panel.exact[i] = panel.magnitudes[i] = 0;
    }
  }
}

// Adds the sums to c, for the columns that are not padding, and counts them: before the scales of
// tensors, which differ between the products that are counted together.
void HeadSums::End(AttentionOperand a, AttentionOperand b, const scaling::Accumulator& rule,
                   std::int64_t first_row, std::int64_t panel, std::int64_t rows,
                   std::int64_t columns, const RunningSums& running, std::int64_t at,
                   AccumulatorCounts* counts, const SumMemory& m, const MatrixArgs& args) const {
  const bool in_blocks = BlockOf(a, b) != 0, by_lines = Of(a).lines || Of(b).lines;
  const Factor factor = FactorOf(a, b, first_row, 0, m);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t lane = 0; lane < kPanel; ++lane) {
      const std::int64_t i = at + row * kPanel + lane, column = panel * kPanel + lane;
      float& c = args.c[row * args.c_row + column];
      if (column >= columns) {
        if (!args.add) c = 0;
        continue;
      }
      const float by = in_blocks ? 1 : factor.At(row, column);
      const float of_codes = in_blocks          ? running.main[i]
                             : rule.promote > 0 ? running.main[i] + running.part[i]
                                                : running.part[i];
      const float sum = by * of_codes;
      c = args.add ? c + sum : sum;
      if (counts == nullptr) continue;
      const double wide = by_lines ? static_cast<double>(by) : 1;
      if (in_blocks)
        counts->Take(sum, running.exact_total[i], running.magnitude_total[i]);
      else
        counts->Take(by_lines ? sum : of_codes, running.exact[i] * wide,
                     running.magnitudes[i] * std::abs(wide));
    }
  }
}

void HeadSums::Multiply(LayerMatmul matmul, AttentionOperand a, AttentionOperand b,
                        const MatrixArgs& given, std::int64_t columns, std::int64_t first,
                        const SumMemory& m) const {
  const scaling::Accumulator& rule = *sums_[scaling::IndexOf(matmul)].rule;
  AccumulatorCounts* counts = matmul == LayerMatmul::kForward ? m.forward : m.dx;
  if (judges_ && counts == nullptr) return;
  MatrixArgs args = given;
  if (judges_) args.c = m.sink;
  const AccumulateArgs all = Describe(rule, a, b, args, first, 0, m);
  for (std::int64_t panel = 0; panel * kPanel < args.columns; ++panel) {
    Begin(m.once, args.rows * kPanel);
    AddPanel(a, b, PanelOf(all, m.once, panel, 0, counts), first, panel * kPanel, 0, true, m.once,
             0, m);
    End(a, b, rule, first, panel, args.rows, columns, m.once, 0, counts, m, args);
  }
}

void HeadSums::Add(AttentionOperand a, AttentionOperand b, const MatrixArgs& given,
                   std::int64_t columns, std::int64_t first, bool last, const RunningSums& running,
                   const SumMemory& m) const {
  if (judges_ && m.dx == nullptr) return;
  const scaling::Accumulator& rule = *sums_[scaling::IndexOf(LayerMatmul::kDx)].rule;
  const std::int64_t rows = sizes_.keys;
  MatrixArgs args = given;
  if (judges_) args.c = m.sink;
  if (first == 0) Begin(running, rows * args.columns);
  AccumulateArgs all = Describe(rule, a, b, args, 0, first, m);
  all.first = first;
  for (std::int64_t panel = 0; panel * kPanel < args.columns; ++panel) {
    const std::int64_t at = panel * rows * kPanel;
    AddPanel(a, b, PanelOf(all, running, panel, rows, m.dx), 0, panel * kPanel, first, last,
             running, at, m);
    if (last) End(a, b, rule, 0, panel, args.rows, columns, running, at, m.dx, m, args);
  }
}

}  // namespace ada::backend::cpu
