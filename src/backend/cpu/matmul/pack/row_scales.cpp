// Each worker finds the largest magnitudes of whole rows, so any number of threads gives the same
// scales.
#include "backend/cpu/matmul/pack/row_scales.h"

#include <algorithm>
#include <cmath>

#include "backend/cpu/rounding/blocks.h"
#include "backend/decisions.h"
#include "number/number_grid.h"

namespace ada::backend::cpu {

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

}  // namespace ada::backend::cpu
