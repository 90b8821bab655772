// The operands of a layer's products in the terms of core/blocks/operand_blocks.h: where they lie,
// and for dumps their block scales.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "core/blocks/operand_blocks.h"
#include "core/tensor.h"
#include "core/tensor_names.h"
#include "graph/graph.h"
#include "train/distributed/team.h"

namespace ada::train {

// Tensors of a backend in the order that PyTorch has.

// Turns [rows, h, w, c] into [rows, c, h, w]; `shape` has h, w and c.
inline std::vector<float> AsPyTorch(const std::vector<float>& in, const Shape& shape) {
  std::vector<float> out;
  out.reserve(in.size());
  const auto pixels = static_cast<std::size_t>(shape.h * shape.w);
  const auto channels = static_cast<std::size_t>(shape.c);
  const std::size_t image = pixels * channels;
  for (std::size_t first = 0; first < in.size(); first += image)
    for (std::size_t c = 0; c < channels; ++c)
      for (std::size_t p = 0; p < pixels; ++p) out.push_back(in[first + p * channels + c]);
  return out;
}

// Where the operands of a linear layer or convolution lie, as its tensors are observed, and the
// largest magnitude that a scale of the tensor is made of.

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

// The block scales of a layer's operands, for dumps: what the products of a pass had, computed from
// the stored tensors by the same rules.

// Scales of one operand, as of ScalesOfOperand. For several processes those of all: lines of the
// batch one process's after the other's, and where blocks run along the batch, blocks.
struct DumpedScales {
  std::string operand;  // forward.x
  std::string format;
  OperandScales scales;
  float amax = 0;  // of the tensor that is rounded
  // A row_scaled format has one for each row, [groups or taps, lines, 1].
  std::optional<OperandScales> row_amaxes = {};
};

// Owned by Dump, which calls it for each tensor that it writes.
class DumpedOperands {
 public:
  // All must outlive it.
  DumpedOperands(const config::Config& config, const graph::Graph& graph, Team& team);

  // For a weight in PyTorch's order.
  std::vector<DumpedScales> OfWeight(const std::string& layer, const NumberFormat& stored,
                                     const std::vector<float>& values) const;
  // For the tensor x or dy of a layer: `values` [rows, h, w, c] as they lie in memory, under S =
  // `scale`. Every process of the team calls it.
  std::vector<DumpedScales> OfBatch(const graph::ObservedTensor& seen, const backend::Pass& pass,
                                    const std::vector<float>& values) const;

 private:
  struct Rounded {
    BlockFormat format;
    int hadamard = 0;
    bool random_signs = false;
  };
  struct Layer {
    OperandLayer is;
    bool pointwise = false;              // a transform is of pixels, not of images
    std::map<Operand, Rounded> rounded;  // those in block-scaled formats
  };
  void Join(const OperandPlace& place, float factor, OperandScales& scales) const;

  Team& team_;
  std::map<std::string, Layer> layers_;
};

}  // namespace ada::train
