// The vectorized kernels of block-scaled formats, one table per instruction set; all agree bit for
// bit with core/blocks/block_rules_inline.h.
#pragma once
#include <cstdint>

#include "backend/cpu/kernels.h"
#include "core/number_format.h"

namespace ada::backend::cpu {

// x = element(x * encode) * decode, value by value; `divides`: element(x / decode) * decode.
struct BlockRoundArgs {
  float* x = nullptr;
  const float *encode = nullptr, *decode = nullptr;
  std::int64_t n = 0;
  NumberFormat element;  // saturates
  // A scaled value that is zero or NaN becomes +0.
  bool plain_zeros = false;
  bool nan_is_zero = false;  // a scaled NaN becomes +0
  bool divides = false;
  // Value i takes random word first + i of (key, draw).
  bool stochastic = false;
  std::uint64_t key = 0, draw = 0, first = 0;
};

struct BlockKernels {
  void (*round)(const BlockRoundArgs&);
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
