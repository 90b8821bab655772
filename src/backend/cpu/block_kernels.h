// The vectorized kernels of block-scaled formats, one table per instruction set; all agree bit for
// bit with core/blocks/block_rules_inline.h.
#pragma once
#include <cstdint>

#include "backend/cpu/kernels.h"
#include "core/blocks/block_quantizer.h"

namespace ada::backend::cpu {

// Values in memory and what is done to them in place.
struct BlockArgs {
  float* x = nullptr;
  BlockLayout layout;           // of x; stride or matrix_stride is 1
  BlockFormat format;           // of every rule but kFourOverSix
  bool bf16_input = false;      // as of BlockGridOf
  const TensorFactor* tensors;  // one, or one for each line, [matrices, rows]
  bool tensor_each = false;
  // x[i] takes random word first + i of (key, draw).
  bool stochastic = false;
  std::uint64_t key = 0, draw = 0, first = 0;
};

struct BlockKernels {
  void (*quantize)(const BlockArgs&);
  // largest[i] = max(largest[i], bits of |x[i]|); a NaN is largest.
  void (*largest_each)(const float* x, std::uint32_t* largest, std::int64_t n);
};

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
