// The vectorized loops of updates that look at a parameter as a whole (ops/matrix_updates.h), in
// addition to kernels.h.
#pragma once
#include <cstdint>

#include "backend/cpu/kernels.h"

namespace ada::backend::cpu {

struct WholeUpdateKernels {
  // y = factor * x + share * y: the product with x and the sum are rounded once, share * y before.
  // x is fp32 or bf16.
  void (*combine)(float factor, TensorSpan x, float share, float* y, std::int64_t n);
  // sums[c] += the squares of x[., c], row by row; rows lie `step` apart.
  void (*column_squares)(const float* x, std::int64_t rows, std::int64_t columns, std::int64_t step,
                         double* sums);
  // change = gradient / sqrt(max(row * columns, least)).
  void (*divide_by_roots)(const float* gradient, float row, const float* columns, float least,
                          float* change, std::int64_t n);
};

namespace generic {
extern const WholeUpdateKernels kWholeUpdateTable;
}
namespace sse2 {
extern const WholeUpdateKernels kWholeUpdateTable;
}
namespace avx2 {
extern const WholeUpdateKernels kWholeUpdateTable;
}
namespace avx512 {
extern const WholeUpdateKernels kWholeUpdateTable;
}
// Those of the same instruction set.
const WholeUpdateKernels& WholeUpdateKernelsOf(const Kernels& kernels);

}  // namespace ada::backend::cpu
