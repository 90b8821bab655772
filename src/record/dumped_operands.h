// Describes the operands of a layer's matmuls for number/blocks/operand_blocks.h: their memory
// layout and, for dumps, their block scales.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "backend/hadamard.h"
#include "config/config.h"
#include "graph/graph.h"
#include "io/tensor_names.h"
#include "number/blocks/operand_blocks.h"
#include "number/tensor.h"
#include "scaling/rules/block_range.h"
#include "step/team.h"

namespace ada::record {

// Turns a backend's [rows, h, w, c] into PyTorch's order, [rows, c, h, w]; `shape` has h, w and c.
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

// The properties of a layer, linear or a convolution, that determine the memory layout of its
// operands as its tensors are observed.
struct OperandLayer {
  std::vector<std::int64_t> weight;  // dims of w
  std::int64_t groups = 1;
  bool transposed = false;  // conv_transpose2d, whose w is [in, out / groups, taps...]

  OperandLayer() = default;
  OperandLayer(const graph::LayerRow& row, const graph::Parameter& w);

  OperandPlace PlaceOfWeight(Operand operand) const;
  // The layout of x or dy for `rows` images or sequences of `shape`: for a linear layer in
  // PyTorch's order, for a convolution in the backend's.
  OperandPlace PlaceOfBatch(Operand operand, const Shape& shape, std::int64_t rows) const;
};

// The largest magnitude of a batch's values; where the processes decide together it is that of all
// of them, and every process has to call it.
float AmaxOfBatch(const std::vector<float>& values, step::Team& team);
// AmaxOfBatch for each row of an operand made from x or dy; rows along the batch are distributed
// over the processes.
std::vector<float> RowAmaxesOfBatch(const OperandPlace& place, const std::vector<float>& values,
                                    step::Team& team);

// Values after the transform of a product's operands (backend/hadamard.h) along the lines of
// an operand, rounded to bf16 where the backend keeps them in that.
std::vector<float> Transformed(std::vector<float> values, const OperandLines& lines,
                               const std::vector<float>& signs, bool bf16);

// The block scales of one operand, as in ScalesOfOperand: those that a pass used, computed again
// from the stored tensors by the same rules. With several processes those of all are concatenated
// in rank order: as lines, or as blocks where blocks run along the batch.
struct DumpedScales {
  std::string operand;  // forward.x
  std::string format;
  OperandScales scales;
  float amax = 0;  // of the tensor that is rounded
  // A row_scaled format has one for each row, [groups or taps, lines, 1].
  std::optional<OperandScales> row_amaxes = {};
};

// Whether a weight's copy is kept as bf16 numbers.
inline bool IsKeptInBf16(const graph::RoundingPoint& copy) {
  return copy.per_tensor_scale == nullptr && HasValuesOf(kBf16, copy.format);
}

// Owned by Dump, which calls it for each tensor that it writes.
class DumpedOperands {
 public:
  // Both must outlive it.
  DumpedOperands(const graph::Graph& graph, step::Team& team);

  // The pass of the weights' refresh, before all else of a step.
  void Begin(const backend::Pass& pass) { refresh_ = pass; }
  // For a weight in PyTorch's order.
  std::vector<DumpedScales> OfWeight(const std::string& layer, const graph::RoundingPoint& copy,
                                     const std::vector<float>& values) const;
  // For the tensor x or dy of a layer: `values` [rows, h, w, c] in memory order, carrying S =
  // `scale`. Every process of the team calls it.
  std::vector<DumpedScales> OfBatch(const graph::ObservedTensor& seen, const backend::Pass& pass,
                                    const std::vector<float>& values) const;

 private:
  struct Rounded {
    BlockFormat format;
    backend::HadamardRule hadamard;
    std::optional<Operand> laid_as;
    std::optional<scaling::BlockRangeRule> adaptive;
  };
  struct Layer {
    OperandLayer is;
    bool pointwise = false;              // a transform is of pixels, not of images
    std::map<Operand, Rounded> rounded;  // those in block-scaled formats
  };
  // Returns the largest magnitude from which the scale of an operand follows that has these values
  // and the largest magnitude `amax`. shared: the processes of the team have parts of it.
  float AdaptedAmax(const Rounded& rounded, const OperandPlace& place, bool bf16,
                    const std::vector<float>& values, float amax, bool shared) const;
  void Join(const OperandPlace& place, float factor, OperandScales& scales) const;

  step::Team& team_;
  std::map<std::string, Layer> layers_;
  backend::Pass refresh_;
};

}  // namespace ada::record
