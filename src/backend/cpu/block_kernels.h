// The vectorized kernels of block-scaled formats, one table per instruction set; all agree bit for
// bit with number/blocks/block_rules_inline.h.
#pragma once
#include <cstdint>
#include <vector>

#include "backend/cpu/kernels.h"
#include "backend/hadamard.h"
#include "number/blocks/block_quantizer.h"

namespace ada::backend::cpu {

// Values in memory and where they go, which may be the same place.
struct BlockArgs {
  TensorSpan from;
  TensorSpan to;                // fp32, or bf16 where it holds every value (HoldersOf)
  BlockLayout layout;           // of both; stride or matrix_stride is 1
  BlockFormat format;           // of every rule but kFourOverSix and kHiFloat4
  bool bf16_input = false;      // as of BlockGridOf
  const TensorFactor* tensors;  // one, or one for each line, [matrices, rows]
  bool tensor_each = false;
  // Where it is not 0, values carry it in the place of the tensor's scale (block_rounding.h).
  float tensor_part = 0;
  // Value i of `to` uses random word first + i of (key, draw).
  bool stochastic = false;
  std::uint64_t key = 0, draw = 0, first = 0;
};

struct BlockKernels {
  void (*quantize)(const BlockArgs&);
  // largest[i] = max(largest[i], bits of |x[i]|); a NaN is largest.
  void (*largest_each)(const float* x, std::uint32_t* largest, std::int64_t n);
  // HadamardInPlace (backend/hadamard.h) of a row for each sign, of `lanes` values, each `step`
  // values after the one before it, in `from` and in `to`; then rounded to `format`, fp32 or bf16.
  // `to` is stored as fp32, or as bf16 where `format` is that.
  void (*hadamard)(const std::vector<float>& signs, const TensorSpan& from, const TensorSpan& to,
                   std::int64_t step, std::int64_t lanes, const NumberFormat& format);
};

namespace generic {
extern const BlockKernels kBlockTable;
}
namespace sse2 {
extern const BlockKernels kBlockTable;
}
namespace avx2 {
extern const BlockKernels kBlockTable;
}
namespace avx512 {
extern const BlockKernels kBlockTable;
}
// Those of the same instruction set.
const BlockKernels& BlockKernelsOf(const Kernels& kernels);

}  // namespace ada::backend::cpu
