// The vectorized kernels of layers of sequences, in addition to kernels.h: matmuls of small
// matrices, and the rows of attention. Rows are `step` values apart, a multiple of 16, in memory of
// the caller; after a row's values there are zeros.
#pragma once
#include <cstdint>

#include "backend/cpu/kernels.h"

namespace ada::backend::cpu {

// c[i, j] (+)= the sum over k of a[i, k] * b[k, j], each in fp32, in the order of k.
struct MatrixArgs {
  const float *a = nullptr, *b = nullptr;
  float* c = nullptr;
  std::int64_t rows = 0, columns = 0, terms = 0;  // columns: a multiple of 16
  std::int64_t a_row = 0, a_term = 1;             // steps of a
  std::int64_t b_term = 0, c_row = 0;
  bool add = false;
};

// Rows of scores of one head: row r sees its first `visible` + r (causal) or `visible` values, at
// most `keys`; `width` values of a row are written.
struct AttentionRows {
  std::int64_t rows = 0, step = 0, width = 0, keys = 0, visible = 0;
  bool causal = false;
};

struct SequenceKernels {
  void (*matrix)(const MatrixArgs&);
  // to[k * to_step + r] = from[r * from_step + k].
  void (*transpose)(const float* from, std::int64_t rows, std::int64_t columns,
                    std::int64_t from_step, float* to, std::int64_t to_step);
  // Rows of `width` values of a tensor as fp32, zeros after them up to the row's step.
  void (*load_rows)(TensorSpan from, std::int64_t from_step, std::int64_t rows, std::int64_t width,
                    float* to, std::int64_t to_step);
  // to = from * factor for rows of `width` values.
  void (*store_rows)(const float* from, std::int64_t from_step, std::int64_t rows,
                     std::int64_t width, float factor, float* to, std::int64_t to_step);
  // The same of a tensor's rows, one after the other, added.
  void (*add_rows)(TensorSpan from, std::int64_t rows, std::int64_t width, float factor, float* to,
                   std::int64_t to_step);
  // s = softmax of factor * s over what a row sees, 0 elsewhere; to 1e-7 of p, of fp32's subnormals
  // as of others.
  void (*probabilities)(const AttentionRows&, float factor, float* s);
  // dp = p (dp - sum of p dp).
  void (*score_gradient)(const AttentionRows&, const float* p, float* dp);
};

namespace generic {
extern const SequenceKernels kSequenceTable;
}
namespace sse2 {
extern const SequenceKernels kSequenceTable;
}
namespace avx2 {
extern const SequenceKernels kSequenceTable;
}
namespace avx512 {
extern const SequenceKernels kSequenceTable;
}

// Those of the same instruction set.
const SequenceKernels& SequenceKernelsOf(const Kernels& kernels);

}  // namespace ada::backend::cpu
