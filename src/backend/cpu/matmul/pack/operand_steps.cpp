// Sixteen lines at a time are transformed side by side in a buffer, so that one vector holds a
// value of each. Each worker finds the largest magnitudes of whole rows, so any number of threads
// gives the same scales. A value is its code times a power of two: what a per-tensor scale
// multiplied is divided out of sums.
#include "backend/cpu/matmul/pack/operand_steps.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "backend/cpu/block_kernels.h"
#include "backend/cpu/matmul/pack/block_rounding.h"
#include "backend/cpu/rounding/blocks.h"
#include "backend/cpu/rounding/rounding_stats.h"
#include "backend/decisions.h"
#include "backend/hadamard.h"
#include "error.h"
#include "number/number_grid.h"

namespace ada::backend::cpu {
namespace {

// The tensor that an operand is made of, where it is not rounded once more.
CodesOf Stored(const MatmulSpec& spec, Operand operand) {
  if (IsWeight(operand)) return {spec.w_format, spec.w_style.per_tensor_scale};
  if (operand == Operand::kForwardX || operand == Operand::kDwX)
    return {spec.x.format, spec.x_per_tensor_scale};
  return {spec.dy.tensor.format, spec.dy.style.per_tensor_scale};
}

}  // namespace

void TransformLines(const Kernels& kernels, const std::vector<float>& signs,
                    const BlockLayout& layout, float* values) {
  constexpr std::int64_t kLines = 16;
  alignas(64) std::array<float, kMostHadamard * kLines> buffer{};
  const TensorSpan span{buffer.data(), Storage::kF32};
  const std::int64_t size = std::ssize(signs), lines = layout.matrices * layout.rows;
  std::array<float*, kLines> places{};
  for (std::int64_t first = 0; first < lines; first += kLines) {
    const std::int64_t count = std::min(kLines, lines - first);
    for (std::int64_t k = 0; k < count; ++k)
      places[static_cast<std::size_t>(k)] = values +
                                            (first + k) / layout.rows * layout.matrix_stride +
                                            (first + k) % layout.rows * layout.row_stride;
    for (std::int64_t i = 0; i + size <= layout.length; i += size) {
      const auto move = [&](auto&& between) {
        for (std::int64_t k = 0; k < count; ++k) {
          float* const line = places[static_cast<std::size_t>(k)] + i * layout.stride;
          for (std::int64_t j = 0; j < size; ++j)
            between(line[j * layout.stride], buffer[static_cast<std::size_t>(j * kLines + k)]);
        }
      };
      move([](const float& here, float& there) { there = here; });
      BlockKernelsOf(kernels).hadamard(signs, span, span, kLines, kLines, kFp32);
      move([](float& here, const float& there) { here = there; });
    }
  }
}

RowScales::RowScales(const Context& context, const OperandRounding& operand,
                     const OperandRows& rows, bool bf16)
    : context_(context),
      rule_(operand.rule),
      rows_(rows),
      bf16_(bf16),
      step_(std::max<std::int64_t>(1, kSegment / rows.width)) {
  context.scratch.Reserve(static_cast<std::size_t>(step_ * rows.width) * sizeof(float), 0);
}

// Rows that run down are columns, of each group of rows; others are the lines within a row.
std::int64_t RowScales::LineOf(std::int64_t row, std::int64_t column) const {
  if (rows_.down) return (rows_.group > 0 ? row / rows_.group : 0) * rows_.width + column;
  const std::int64_t matrix = rows_.stride == 1 ? column / rows_.length : column % rows_.stride;
  return row * rows_.matrices + matrix;
}

// Bits of magnitudes have the order of magnitudes, NaN above all. Each range of rows has maxima of
// its own: of all columns, or of its lines.
void RowScales::Measure(TensorSpan from, std::int64_t rows, parallel::Communicator* shared) {
  const auto lines = static_cast<std::size_t>(LineOf(rows - 1, rows_.width - 1) + 1);
  const std::int64_t ranges = (rows + step_ - 1) / step_;
  std::vector<std::uint32_t> largest(lines);
  std::vector<std::vector<std::uint32_t>> of_ranges(rows_.down ? static_cast<std::size_t>(ranges)
                                                               : 0);
  context_.pool.For(ranges, [&](std::int64_t range, int worker) {
    const std::int64_t first = range * step_, count = std::min(step_, rows - first);
    auto* values = reinterpret_cast<float*>(context_.scratch.worker(worker));
    context_.kernels.widen(Advance(from, first * rows_.width), values, count * rows_.width);
    std::vector<std::uint32_t>* to = &largest;
    if (rows_.down) to = &of_ranges[static_cast<std::size_t>(range)], to->resize(lines);
    for (std::int64_t row = 0; row < count; ++row)
      for (std::int64_t column = 0; column < rows_.width; ++column) {
        std::uint32_t& most = (*to)[static_cast<std::size_t>(LineOf(first + row, column))];
        most = std::max(most, MagnitudeBits(values[row * rows_.width + column]));
      }
  });
  for (const std::vector<std::uint32_t>& range : of_ranges)
    for (std::size_t i = 0; i < lines; ++i) largest[i] = std::max(largest[i], range[i]);
  std::vector<float> amaxes(lines);
  std::transform(largest.begin(), largest.end(), amaxes.begin(), OfBits);
  if (rows_.down && IsShared(shared)) LargestOfAll(*shared, amaxes);
  scales_.resize(lines);
  std::transform(amaxes.begin(), amaxes.end(), scales_.begin(),
                 [this](float amax) { return scaling::RowScaleOf(rule_, amax, bf16_); });
}

void RowScales::Spread(std::int64_t first, std::int64_t n, float* encodes, float* decodes) const {
  std::int64_t row = first / rows_.width, column = first % rows_.width;
  for (std::int64_t i = 0; i < n; ++i) {
    const scaling::RowScale& scale = scales_[static_cast<std::size_t>(LineOf(row, column))];
    encodes[i] = scale.encode, decodes[i] = scale.decode;
    if (++column == rows_.width) column = 0, ++row;
  }
}

void RowScales::Round(std::int64_t first, std::int64_t n, const float* from,
                      const Rounding& rounding, std::byte* memory, float* to) const {
  auto* encodes = reinterpret_cast<float*>(memory);
  auto* decodes = reinterpret_cast<float*>(memory + Bytes(static_cast<std::size_t>(n)) / 2);
  Spread(first, n, encodes, decodes);
  if (kept_ != nullptr) std::copy_n(decodes, n, kept_ + first);
  RoundEach(context_.kernels, rule_, encodes, decodes, n, from, rounding, to);
}

// The kernels know one scale at most: values are scaled before and after them. A value that its
// scale makes zero is lost too.
void RowScales::RoundEach(const Kernels& kernels, const scaling::TensorScaleRule& rule,
                          const float* encodes, const float* decodes, std::int64_t n,
                          const float* from, const Rounding& rounding, float* to) {
  const TensorSpan out{to, Storage::kF32};
  Rounding scaled = rounding;
  BlockStats of_scaled;
  if (rounding.stats != nullptr) {
    Rounding unscaled = rounding;
    unscaled.format = kFp32, unscaled.stochastic = false;
    kernels.inspect({const_cast<float*>(from), Storage::kF32}, n, unscaled);
    scaled.stats = &of_scaled, scaled.bins = nullptr;
  }
  kernels.multiply(from, encodes, to, n);
  kernels.round(to, 1.0f, out, n, scaled);
  if (scaling::MultipliesBack(rule))
    for (std::int64_t i = 0; i < n; ++i) to[i] *= decodes[i];
  else
    for (std::int64_t i = 0; i < n; ++i) to[i] /= encodes[i];
  if (rounding.stats == nullptr) return;
  BlockStats& all = *rounding.stats;
  // Rows with a scale of 0 or NaN, which inf and NaN leave under rule torchao, become NaN: none of
  // their values ends as a zero, though scaled by 0 they lie below the format's smallest number.
  std::int64_t lost = 0, zeros_lost = 0, cleared = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    if ((encodes[i] > 0 && std::isfinite(encodes[i])) || !std::isfinite(from[i])) continue;
    zeros_lost += from[i] == 0;
    ++(encodes[i] == 0 ? cleared : lost);
  }
  all.underflow = of_scaled.underflow + (of_scaled.zeros - cleared) - (all.zeros - zeros_lost);
  all.zeros_after = of_scaled.zeros_after - cleared;
  all.below_min = of_scaled.below_min;
  all.subnormal = of_scaled.subnormal, all.overflow = of_scaled.overflow + lost;
  all.above_edge = of_scaled.above_edge;
}

int CodesOf::least() const { return std::max(LowestExponentOf(format), -126); }

// Decoded values of blocks are numbers of bf16 with any exponent where their scales are powers of
// two or fp8 numbers.
CodesOf CodesOfOperand(const MatmulSpec& spec, Operand operand) {
  const OperandRounding& rounding = spec.operands[IndexOf(operand)];
  if (!rounding.rounds) return Stored(spec, operand);
  if (rounding.block) {
    const BlockFormat& format = *rounding.block;
    const bool of_tensor = format.tensor_scale && !BlockRounding::LeavesFactor(format);
    if (format.row_scaled || of_tensor)
      throw ConfigError("precision.accumulate: layer " + spec.layer + ": " + NameOf(operand) +
                        " is in " + FormatName(AnyFormat(format)) +
                        ", whose rows or tensors have scales that are no powers of two; an "
                        "accumulator adds codes, and of such blocks these are not kept");
    if (format.scale == BlockScale::kFp32) return {format.element, nullptr, format.block};
    return {kBf16, nullptr};
  }
  if (rounding.row_scaled) return {rounding.format, nullptr, CodesOf::kLine};
  return {rounding.format, rounding.style.per_tensor_scale};
}

bool KeepsScales(const MatmulSpec& spec, Operand operand) {
  const OperandRounding& rounding = spec.operands[IndexOf(operand)];
  const bool blocks = rounding.block && rounding.block->scale == BlockScale::kFp32;
  if (!blocks && !rounding.row_scaled) return false;
  const ProductSums& sums = spec.sums[IndexOf(operand) / 2];  // each product has two operands
  return sums.rule.has_value() || !sums.judged.empty();
}

// A product is below 4 times the power of its exponent; sums of k of them, and promotions, stay
// below 2^125.
bool FitVectors(const CodesOf& a, const CodesOf& b, int largest_a, int largest_b, std::int64_t k) {
  const int digits = a.format.mantissa_bits + b.format.mantissa_bits + 2;
  const int length = k > 1 ? 64 - __builtin_clzll(static_cast<unsigned long long>(k - 1)) : 0;
  return digits <= 24 && largest_a < 128 && largest_b < 128 &&
         largest_a + largest_b + 2 + length <= 124;
}

int ToCodes(const Context& context, const CodesOf& codes, TensorSpan from, std::int64_t n,
            float* values, std::int16_t* exponents, const float* scales) {
  const Kernels& kernels = context.kernels;
  kernels.widen(from, values, n);
  if (codes.scale != nullptr)
    kernels.round(values, codes.scale->scale, {values, Storage::kF32}, n, RoundOnly(codes.format));
  if (scales != nullptr) {
    for (std::int64_t i = 0; i < n; ++i) values[i] = scales[i] != 0 ? values[i] / scales[i] : 0.0f;
    kernels.round(values, 1.0f, {values, Storage::kF32}, n, RoundOnly(codes.format));
  }
  return AccumulateKernelsOf(kernels).exponents(values, n, codes.least(), exponents);
}

}  // namespace ada::backend::cpu
