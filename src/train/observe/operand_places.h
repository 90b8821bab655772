// Where the operands of a linear layer or convolution lie, as its tensors are observed, and the
// largest magnitude that a scale of the tensor is made of.
#pragma once
#include <cstdint>
#include <vector>

#include "core/blocks/operand_blocks.h"
#include "core/tensor_names.h"
#include "graph/graph.h"
#include "train/distributed/team.h"

namespace ada::train {

// What of a layer its operands' places depend on.
struct OperandLayer {
  std::vector<std::int64_t> weight;  // dims of w
  std::int64_t groups = 1;
  bool transposed = false;  // conv_transpose2d, whose w is [in, out / groups, taps...]

  OperandLayer() = default;
  OperandLayer(const graph::LayerRow& row, const graph::Parameter& w);

  OperandPlace PlaceOfWeight(Operand operand) const;
  // x or dy of `rows` images or sequences of `shape`: of a linear layer in PyTorch's order, of a
  // convolution as a backend has them.
  OperandPlace PlaceOfBatch(Operand operand, const Shape& shape, std::int64_t rows) const;
};

// The largest magnitude of a batch's values; of all processes where they decide together, each of
// which calls it.
float AmaxOfBatch(const std::vector<float>& values, Team& team);
// Those of the rows of an operand made of x or dy, as AmaxOfBatch: rows along the batch are shared
// by the processes.
std::vector<float> RowAmaxesOfBatch(const OperandPlace& place, const std::vector<float>& values,
                                    Team& team);

}  // namespace ada::train
