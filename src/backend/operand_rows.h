// Places of the blocks of a matmul's operands in a backend's memory, and the ranges in which they
// are counted: determined by shapes only, and the same for all backends.
#pragma once
#include <algorithm>
#include <cstdint>

#include "io/tensor_names.h"
#include "number/blocks/block_format.h"
#include "number/tensor.h"

namespace ada::backend {

// An operand in memory: consecutive rows of `width` values.
struct OperandRows {
  std::int64_t width = 1;
  // True: blocks run across rows, separately for each column. Otherwise they run along rows, or
  // (square ones) over both; a row then consists of `matrices` lines of `length` values, and value
  // i of line m is at m * matrix_stride + i * stride.
  bool down = false;
  std::int64_t matrices = 1, length = 1, matrix_stride = 0, stride = 1;
  // Groups of so many rows share no block (the weights of a group of channels); 0: no limit.
  std::int64_t group = 0;
};

// The rows of x or dy. Blocks run along what the matmul sums over: channels in y and dx (of one
// group; for a linear layer all values of an image, in PyTorch's order), images and pixels in dw.
// Square blocks lie in the plane of both, so that they are the same for each matmul.
inline OperandRows RowsOfBatch(bool linear, std::int64_t groups, const Shape& shape,
                               Operand operand, bool square) {
  const bool is_dw = operand == Operand::kDwX || operand == Operand::kDwDy;
  OperandRows rows;
  rows.width = linear ? shape.per_image() : shape.c;
  rows.down = is_dw && !square;
  rows.matrices = groups;
  rows.length = rows.matrix_stride = rows.width / groups;
  return rows;
}

// The rows of weights in PyTorch's order: one is an output channel, or (transposed) an input
// channel. Blocks of the weights of a convolution lie within one tap.
inline OperandRows RowsOfWeights(bool linear, bool transposed, std::int64_t groups, const Shape& w,
                                 Operand operand, bool square) {
  OperandRows rows;
  rows.width = w.per_image();
  rows.down = operand == (transposed ? Operand::kForwardW : Operand::kDxW) && !square;
  if (rows.down || square) rows.group = w.n / groups;
  const std::int64_t taps = linear ? 1 : w.h * w.w;
  rows.matrices = taps, rows.matrix_stride = 1;
  rows.length = rows.width / taps, rows.stride = taps;
  return rows;
}

// Whether a batch's rows must be read in PyTorch's order, because blocks run along channels and
// pixels.
inline bool TakenAsPyTorch(bool linear, const Shape& shape, const OperandRows& rows) {
  return linear && !rows.down && shape.c > 1 && shape.h * shape.w > 1;
}

// Rows that a block has values of.
inline std::int64_t RowsOfBlock(const OperandRows& rows, const BlockFormat& format) {
  return rows.down || format.square ? format.block : 1;
}
// Rows that are counted together, before their counts are added to those of others.
inline std::int64_t RowsOfRange(const OperandRows& rows, const BlockFormat& format) {
  constexpr std::int64_t kValues = 16384;
  const std::int64_t step = RowsOfBlock(rows, format);
  const std::int64_t wanted = std::max<std::int64_t>(1, kValues / rows.width);
  const std::int64_t most = std::max(step, wanted / step * step);
  return rows.group > 0 ? std::min(most, rows.group) : most;
}

}  // namespace ada::backend
