// The scalar rule over all outputs of one product, with what it loses beside fp32 sums.
#include "scaling/rules/accumulated_product.h"

#include <algorithm>
#include <cmath>

#include "error.h"
#include "scaling/rules/accumulator_inline.h"

namespace ada::scaling {
namespace {

// An operand's values as products take them, with the exponents that alignment sees.
struct Prepared {
  std::vector<double> values;
  std::vector<int> exponents;
};

std::int64_t BlockOf(const AccumulatedOperand& operand, std::int64_t k) {
  return operand.scale_block == 0 ? k : operand.scale_block;
}
float ScaleAt(const AccumulatedOperand& operand, std::int64_t row, std::int64_t at,
              std::int64_t k) {
  const std::int64_t block = BlockOf(operand, k), blocks = (k + block - 1) / block;
  return operand.scales[row / operand.scale_rows * blocks + at / block];
}

Prepared Prepare(const AccumulatedOperand& operand, std::int64_t k) {
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
std::int64_t SegmentOf(const AccumulatedOperand& operand, std::int64_t k) {
  return operand.scales == nullptr || operand.scales_in_products ? k : BlockOf(operand, k);
}

float FactorAt(const AccumulatedOperand& a, const AccumulatedOperand& b, std::int64_t m,
               std::int64_t n, std::int64_t at, std::int64_t k) {
  float factor = 1;
  if (a.scales != nullptr && !a.scales_in_products) factor = ScaleAt(a, m, at, k);
  if (b.scales != nullptr && !b.scales_in_products) factor *= ScaleAt(b, n, at, k);
  return factor;
}

}  // namespace

void AccumulatedProduct(const Accumulator& rule, const AccumulatedOperand& a,
                        const AccumulatedOperand& b, std::int64_t k, float* c,
                        AccumulatorCounts* counts) {
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
