// The block scales of a layer's operands, for dumps: what the products of a pass had, computed from
// the stored tensors by the same rules.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "core/blocks/operand_blocks.h"
#include "graph/graph.h"
#include "train/distributed/team.h"
#include "train/observe/operand_places.h"

namespace ada::train {

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
