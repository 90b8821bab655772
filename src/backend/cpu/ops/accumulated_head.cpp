// Each product of a head is rows times columns, which the kernel adds as the accumulator does.
#include "backend/cpu/ops/accumulated_head.h"

#include <algorithm>

#include "error.h"
#include "number/number_grid.h"

namespace ada::backend::cpu {
namespace {

using scaling::AccumulatorCounts;
using scaling::Product;

// Values in fp32 whose format needs less may carry a per-tensor scale that is no power of two.
NumberFormat CodesFormat(const Tensor& tensor) {
  return tensor.storage == Storage::kF32 ? kFp32 : tensor.format;
}
NumberFormat CodesFormat(bool rounds, const NumberFormat& format, const RoundingStyle& style) {
  return rounds && style.per_tensor_scale == nullptr ? format : kFp32;
}

NumberFormat StoredFormat(const AttentionSpec& spec, AttentionTensor tensor) {
  switch (tensor) {
    case AttentionTensor::kQ:
      return CodesFormat(spec.x[0]);
    case AttentionTensor::kK:
      return CodesFormat(spec.x[spec.fused() ? 0 : 1]);
    case AttentionTensor::kV:
      return CodesFormat(spec.x[spec.fused() ? 0 : 2]);
    case AttentionTensor::kP:
      return CodesFormat(spec.rounds_p, spec.p_format, spec.p_style);
    case AttentionTensor::kDy:
      return CodesFormat(spec.dy.tensor);
    case AttentionTensor::kDs:
      return CodesFormat(spec.rounds_ds, spec.ds_format, spec.ds_style);
  }
  throw InternalError("a tensor that is none of attention's");
}

}  // namespace

bool AddsCodes(const AttentionSpec& spec, AttentionOperand operand) {
  const Product product =
      IndexOf(operand) < IndexOf(AttentionOperand::kDvP) ? Product::kForward : Product::kDx;
  return spec.sums[scaling::IndexOf(product)].rule.has_value();
}

// Decoded values of blocks are numbers of bf16 where their scales are powers of two or fp8 numbers.
HeadSums::Codes HeadSums::CodesOf(const AttentionSpec& spec, AttentionOperand operand) {
  const OperandRounding& rounding = spec.attention_operands[IndexOf(operand)];
  NumberFormat format = StoredFormat(spec, TensorOf(operand));
  const scaling::TensorScaler* scale = nullptr;
  if (rounding.rounds && rounding.block) {
    const BlockFormat& block = *rounding.block;
    if (AddsCodes(spec, operand) && (block.tensor_scale || block.scale == BlockScale::kFp32))
      throw ConfigError("precision.accumulate: layer " + spec.layer + ": " + NameOf(operand) +
                        " is in " + FormatName(AnyFormat(block)) +
                        ", whose scales are no powers of two; an accumulator adds codes, and of "
                        "such blocks attention keeps none");
    format = kBf16;
  } else if (rounding.rounds) {
    format = rounding.format, scale = rounding.style.per_tensor_scale;
  }
  return {std::max(LowestExponentOf(format), -126), format.mantissa_bits + 1, scale};
}

HeadSums::Factor HeadSums::FactorOf(AttentionOperand a, AttentionOperand b, std::int64_t first,
                                    const SumMemory& m) const {
  const auto inverse = [](const Codes& of) {
    return of.scale != nullptr ? 1 / of.scale->scale : 1.0f;
  };
  const float* const rows = m.lines[IndexOf(a)];
  return {inverse(Of(a)) * inverse(Of(b)), rows != nullptr ? rows + first : nullptr,
          m.lines[IndexOf(b)]};
}

HeadSums::HeadSums(const Context& context, const AttentionSpec& spec, const Sizes& sizes)
    : kernels_(AccumulateKernelsOf(context.kernels)), sums_(spec.sums), sizes_(sizes) {
  for (std::size_t i = 0; i < kAttentionOperands; ++i)
    codes_[i] = CodesOf(spec, static_cast<AttentionOperand>(i));
  counts_ = std::any_of(sums_.begin(), sums_.end(),
                        [](const ProductSums& of) { return of.counts != nullptr; });
  const auto& dx = sums_[scaling::IndexOf(Product::kDx)].rule;
  if (dx && sizes.block_rows % dx->group != 0)
    throw ConfigError("precision.accumulate: layer " + spec.layer + ": dx takes " +
                      std::to_string(dx->group) +
                      " products at once; attention's queries come in blocks of " +
                      std::to_string(sizes.block_rows) + ", which `group` has to divide");
}

std::size_t HeadSums::bytes() const {
  const std::size_t sum = 2 * sizeof(float) + (counts_ ? 2 * sizeof(double) : 0);
  const auto sums = [&](std::int64_t rows, std::int64_t columns) {
    return WholeLines(static_cast<std::size_t>(rows * columns) * sum) + 64;
  };
  return WholeLines(static_cast<std::size_t>(sizes_.a) * 2) +
         WholeLines(static_cast<std::size_t>(sizes_.b) * 2) + sums(sizes_.block_rows, kPanel) +
         2 * sums(sizes_.keys, sizes_.columns);
}

RunningSums HeadSums::CutSums(std::byte*& memory, std::int64_t rows, std::int64_t columns) const {
  const std::int64_t values = rows * columns;
  RunningSums sums{};
  if (counts_) {
    sums.exact = reinterpret_cast<double*>(memory), sums.magnitudes = sums.exact + values;
    memory += static_cast<std::size_t>(2 * values) * sizeof(double);
  }
  sums.part = reinterpret_cast<float*>(memory), sums.main = sums.part + values;
  memory += WholeLines(static_cast<std::size_t>(2 * values) * sizeof(float));
  return sums;
}

SumMemory HeadSums::Cut(std::byte* memory) const {
  SumMemory m;
  m.a_exponents = reinterpret_cast<std::int16_t*>(memory);
  memory += WholeLines(static_cast<std::size_t>(sizes_.a) * 2);
  m.b_exponents = reinterpret_cast<std::int16_t*>(memory);
  memory += WholeLines(static_cast<std::size_t>(sizes_.b) * 2);
  m.once = CutSums(memory, sizes_.block_rows, kPanel);
  m.dk = CutSums(memory, sizes_.keys, sizes_.columns);
  m.dv = CutSums(memory, sizes_.keys, sizes_.columns);
  return m;
}

void HeadSums::Begin(const RunningSums& running, std::int64_t values) const {
  std::fill_n(running.part, values, 0.0f);
  std::fill_n(running.main, values, 0.0f);
  if (!counts_) return;
  std::fill_n(running.exact, values, 0.0);
  std::fill_n(running.magnitudes, values, 0.0);
}

// The exponents of both matrices, as they lie: rows of a that are its columns are lines of memory.
AccumulateArgs HeadSums::Describe(const scaling::Accumulator& rule, AttentionOperand a,
                                  AttentionOperand b, const MatrixArgs& args, std::int64_t length,
                                  const SumMemory& m) const {
  const bool turned = args.a_term != 1;
  const std::int64_t lines = turned ? args.terms : args.rows;
  const std::int64_t step = turned ? args.a_term : args.a_row;
  const std::int64_t values = turned ? args.rows : args.terms;
  int largest_a = kExponentOfZero, largest_b = kExponentOfZero;
  for (std::int64_t line = 0; line < lines; ++line)
    largest_a = std::max(largest_a, kernels_.exponents(args.a + line * step, values, Of(a).least,
                                                       m.a_exponents + line * step));
  for (std::int64_t term = 0; term < args.terms; ++term)
    largest_b =
        std::max(largest_b, kernels_.exponents(args.b + term * args.b_term, args.columns,
                                               Of(b).least, m.b_exponents + term * args.b_term));
  AccumulateArgs all;
  all.rule = rule;
  all.a = args.a, all.a_exponents = m.a_exponents;
  all.a_row = args.a_row, all.a_step = args.a_term;
  all.b = args.b, all.b_exponents = m.b_exponents, all.b_step = args.b_term;
  all.rows = args.rows, all.k = args.terms;
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

void HeadSums::Multiply(Product product, AttentionOperand a, AttentionOperand b,
                        const MatrixArgs& args, std::int64_t columns, std::int64_t first,
                        const SumMemory& m) const {
  const scaling::Accumulator& rule = *sums_[scaling::IndexOf(product)].rule;
  AccumulatorCounts* counts = product == Product::kForward ? m.forward : m.dx;
  const AccumulateArgs all = Describe(rule, a, b, args, args.terms, m);
  const Factor factor = FactorOf(a, b, first, m);
  for (std::int64_t panel = 0; panel * kPanel < args.columns; ++panel) {
    Begin(m.once, args.rows * kPanel);
    AccumulateArgs one = PanelOf(all, m.once, panel, 0, counts);
    kernels_.accumulate(one);
    for (std::int64_t row = 0; row < args.rows; ++row) {
      for (std::int64_t lane = 0; lane < kPanel; ++lane) {
        const std::int64_t i = row * kPanel + lane;
        const float sum = rule.promote > 0 ? m.once.main[i] + m.once.part[i] : m.once.part[i];
        const std::int64_t column = panel * kPanel + lane;
        float& c = args.c[row * args.c_row + column];
        if (column >= columns) {
          c = sum;
          continue;
        }
        const float by = factor.At(row, column);
        c = sum * by;
        if (counts == nullptr) continue;
        const auto wide = static_cast<double>(by);
        counts->Take(c, m.once.exact[i] * wide, m.once.magnitudes[i] * wide);
      }
    }
  }
}

void HeadSums::Add(AttentionOperand a, AttentionOperand b, const MatrixArgs& args,
                   std::int64_t columns, std::int64_t first, bool last, const RunningSums& running,
                   const SumMemory& m) const {
  const scaling::Accumulator& rule = *sums_[scaling::IndexOf(Product::kDx)].rule;
  const std::int64_t rows = sizes_.keys;
  if (first == 0) Begin(running, rows * args.columns);
  AccumulateArgs all = Describe(rule, a, b, args, first + args.terms, m);
  all.first = first;
  const Factor factor = FactorOf(a, b, 0, m);
  for (std::int64_t panel = 0; panel * kPanel < args.columns; ++panel) {
    kernels_.accumulate(PanelOf(all, running, panel, rows, m.dx));
    if (!last) continue;
    for (std::int64_t row = 0; row < args.rows; ++row) {
      for (std::int64_t lane = 0; lane < kPanel; ++lane) {
        const std::int64_t i = (panel * rows + row) * kPanel + lane;
        const float sum = rule.promote > 0 ? running.main[i] + running.part[i] : running.part[i];
        const std::int64_t column = panel * kPanel + lane;
        if (column >= columns) continue;
        const float by = factor.At(row, column);
        args.c[row * args.c_row + column] += sum * by;
        if (m.dx == nullptr) continue;
        const auto wide = static_cast<double>(by);
        m.dx->Take(sum * by, running.exact[i] * wide, running.magnitudes[i] * wide);
      }
    }
  }
}

}  // namespace ada::backend::cpu
