// C = A B^T with sums as an accumulator makes them, of any two matrices: the rule applied output by
// output, with what it loses beside fp32 sums. Training computes the same bits with vectors
// (backend/cpu/accumulate).
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "error.h"
#include "scaling/rules/accumulator_inline.h"

namespace ada::scaling {

// A matrix [rows, k] as its codes' values and, where it is scaled, scales: a number is value *
// scale.
struct AccumulatedOperand {
  const float* values = nullptr;
  std::int64_t rows = 0;
  int least_exponent = -126;  // of the codes' format: that of its smallest normal value
  // [ceil(rows / scale_rows), ceil(k / scale_block)]; null: none.
  const float* scales = nullptr;
  std::int64_t scale_rows = 1, scale_block = 0;  // values that share one; scale_block 0: all of k
  // True: scales are powers of two (as of the microscaling formats) and belong to the products,
  // whose exponents they shift. False: the codes are added, and the scales multiplied in where a
  // block of them ends, at the end at the latest: main = fma(part, fp32(scale_a * scale_b), main).
  bool scales_in_products = false;
};

// An operand's values as products take them, with the exponents that alignment sees.
struct Prepared {
  std::vector<double> values;
  std::vector<int> exponents;
};

inline std::int64_t BlockOf(const AccumulatedOperand& operand, std::int64_t k) {
  return operand.scale_block == 0 ? k : operand.scale_block;
}
inline float ScaleAt(const AccumulatedOperand& operand, std::int64_t row, std::int64_t at,
                     std::int64_t k) {
  const std::int64_t block = BlockOf(operand, k), blocks = (k + block - 1) / block;
  return operand.scales[row / operand.scale_rows * blocks + at / block];
}

inline Prepared Prepare(const AccumulatedOperand& operand, std::int64_t k) {
  Prepared out;
  const auto count = static_cast<std::size_t>(operand.rows * k);
  out.values.resize(count), out.exponents.resize(count);
  const bool shifts = operand.scales != nullptr && operand.scales_in_products;
  for (std::int64_t row = 0; row < operand.rows; ++row) {
    for (std::int64_t i = 0; i < k; ++i) {
      const auto at = static_cast<std::size_t>(row * k + i);
      const float value = operand.values[at];
      out.values[at] = static_cast<double>(value);
      out.exponents[at] = value == 0 ? 0 : AlignedExponent(value, operand.least_exponent);
      if (!shifts) continue;
      const float scale = ScaleAt(operand, row, i, k);
      ADA_CHECK(!std::isfinite(scale) || IsPowerOfTwo(static_cast<double>(scale)));
      out.values[at] *= static_cast<double>(scale);
      out.exponents[at] += detail::ExponentOfDouble(static_cast<double>(scale));
    }
  }
  return out;
}

// Where sums are brought to fp32 because a scale ends; k where one scale covers all.
inline std::int64_t SegmentOf(const AccumulatedOperand& operand, std::int64_t k) {
  return operand.scales == nullptr || operand.scales_in_products ? k : BlockOf(operand, k);
}

inline float FactorAt(const AccumulatedOperand& a, const AccumulatedOperand& b, std::int64_t m,
                      std::int64_t n, std::int64_t at, std::int64_t k) {
  float factor = 1;
  if (a.scales != nullptr && !a.scales_in_products) factor = ScaleAt(a, m, at, k);
  if (b.scales != nullptr && !b.scales_in_products) factor *= ScaleAt(b, n, at, k);
  return factor;
}

// c: [a.rows, b.rows] in fp32. k is the length of the sums. counts: null, or what they lost.
inline void AccumulatedProduct(const Accumulator& rule, const AccumulatedOperand& a,
                               const AccumulatedOperand& b, std::int64_t k, float* c,
                               AccumulatorCounts* counts = nullptr) {
  const Prepared left = Prepare(a, k), right = Prepare(b, k);
  // Segments of one scale each; a promotion interval starts anew in each of them.
  const std::int64_t segment_a = SegmentOf(a, k), segment_b = SegmentOf(b, k);
  const std::int64_t segment = std::max<std::int64_t>(std::min(segment_a, segment_b), 1);
  ADA_CHECK((segment_a % segment == 0 || segment_a >= k) &&
            (segment_b % segment == 0 || segment_b >= k));
  const bool scaled_once = segment >= k;
  std::vector<double> products(static_cast<std::size_t>(rule.group));
  std::vector<int> exponents(products.size());
  for (std::int64_t m = 0; m < a.rows; ++m) {
    for (std::int64_t n = 0; n < b.rows; ++n) {
      AccumulatedSum sum;
      double exact = 0, magnitudes = 0;
      std::int64_t taken = 0;  // since the segment began
      std::int64_t begin = 0;  // of the segment
      for (std::int64_t i = 0; i < k;) {
        const std::int64_t end = std::min({i + rule.group, begin + segment, k});
        const int count = static_cast<int>(end - i);
        const double scale = scaled_once ? 1 : static_cast<double>(FactorAt(a, b, m, n, begin, k));
        for (int j = 0; j < count; ++j) {
          const auto at_a = static_cast<std::size_t>(m * k + i + j);
          const auto at_b = static_cast<std::size_t>(n * k + i + j);
          const auto at = static_cast<std::size_t>(j);
          products[at] = left.values[at_a] * right.values[at_b];
          exponents[at] = left.exponents[at_a] + right.exponents[at_b];
          if (counts == nullptr) continue;
          counts->products += products[at] != 0 ? 1 : 0;
          exact += products[at] * scale, magnitudes += std::abs(products[at] * scale);
        }
        sum.part = AddGroup(rule, products.data(), exponents.data(), count, sum.part,
                            counts != nullptr ? &counts->swallowed : nullptr);
        i = end, taken += count;
        const bool ends = i == begin + segment || i == k;
        if (ends && !scaled_once) {
          Promote(sum, static_cast<float>(scale));
          begin = i, taken = 0;
        } else if (rule.promote > 0 && (i == k || taken % rule.promote == 0)) {
          Promote(sum, scaled_once ? 1 : static_cast<float>(scale));
        }
      }
      float got = scaled_once && rule.promote == 0 ? static_cast<float>(sum.part) : sum.main;
      if (scaled_once) {
        const float factor = FactorAt(a, b, m, n, 0, k);
        if (factor != 1) {
          got *= factor;
          exact *= static_cast<double>(factor), magnitudes *= static_cast<double>(factor);
        }
      }
      c[m * b.rows + n] = got;
      if (counts != nullptr) counts->Take(got, exact, magnitudes);
    }
  }
}

}  // namespace ada::scaling
