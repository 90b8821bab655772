// C = A B^T with sums as an accumulator makes them, of any two matrices: the rule applied output by
// output on the host. Training computes the same bits with vectors (backend/cpu/accumulate).
#pragma once
#include <cstdint>
#include <vector>

#include "scaling/rules/accumulator.h"

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

// c: [a.rows, b.rows] in fp32. k is the length of the sums. counts: null, or what they lost.
void AccumulatedProduct(const Accumulator& rule, const AccumulatedOperand& a,
                        const AccumulatedOperand& b, std::int64_t k, float* c,
                        AccumulatorCounts* counts = nullptr);

}  // namespace ada::scaling
