// The vectorized kernels of sums as an accumulator makes them, one table per instruction set; all
// agree bit for bit with scaling/rules/accumulator_inline.h.
#pragma once
#include <cstdint>

#include "backend/cpu/kernels.h"
#include "scaling/rules/accumulator.h"

namespace ada::backend::cpu {

// Sums are made sixteen at a time: those of one row of a with sixteen rows of b, a panel.
inline constexpr int kPanel = 16;
// The exponent of a value that is zero; two of them do not leave 16 bits.
inline constexpr std::int16_t kExponentOfZero = -15000;

// Some rows of a with one panel of b, over a part of the sum: a block of k.
struct AccumulateArgs {
  scaling::Accumulator rule;
  // Value k of row m is at m * a_row + k * a_step, in both.
  const float* a = nullptr;
  const std::int16_t* a_exponents = nullptr;
  std::int64_t a_row = 0, a_step = 1;
  // Value k of lane l is at k * b_step + l, in both; lanes that are not used are zeros.
  const float* b = nullptr;
  const std::int16_t* b_exponents = nullptr;
  std::int64_t b_step = kPanel;
  std::int64_t rows = 0, k = 0;
  std::int64_t first = 0;  // products of the sum before this block: whole groups
  // Whether sums of these operands stay within fp32 by far, and their products have at most 24
  // significant bits. False: computed output by output.
  bool vectors = false;
  // The running sums [rows, kPanel], which go on from block to block and start as zeros. main is
  // null where nothing is promoted.
  float *part = nullptr, *main = nullptr;
  // Null, or what is counted: sums of products and of their magnitudes in double [rows, kPanel],
  // and products and swallowed of `counts`.
  double *exact = nullptr, *magnitudes = nullptr;
  scaling::AccumulatorCounts* counts = nullptr;
};

struct AccumulateKernels {
  // The exponents that alignment sees (AlignedExponent); of inf and NaN 128. Returns the largest.
  int (*exponents)(const float* values, std::int64_t n, int least, std::int16_t* exponents);
  void (*accumulate)(const AccumulateArgs&);
};

namespace generic {
extern const AccumulateKernels kAccumulateTable;
}
namespace sse2 {
extern const AccumulateKernels kAccumulateTable;
}
namespace avx2 {
extern const AccumulateKernels kAccumulateTable;
}
namespace avx512 {
extern const AccumulateKernels kAccumulateTable;
}
// Those of the same instruction set.
const AccumulateKernels& AccumulateKernelsOf(const Kernels& kernels);

}  // namespace ada::backend::cpu
