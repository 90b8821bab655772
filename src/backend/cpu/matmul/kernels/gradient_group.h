// A part of a partial weight gradient that kernels sum as a whole.
#pragma once
#include <cstdint>

namespace ada::backend::cpu {

// Tiles of dw, 16 x 16 values each, that lie together in a partial gradient: `outs` blocks of 16
// output channels times `columns` columns (blocks of 16 weights of one output). `tile`: the first
// one's number.
struct GradientGroup {
  int outs = 1, columns = 1, out = 0, column = 0, tile = 0;
  std::int64_t first_value() const { return std::int64_t{256} * tile; }
  std::int64_t values() const { return std::int64_t{256} * outs * columns; }
};

}  // namespace ada::backend::cpu
