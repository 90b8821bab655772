// What a graph offers to those who log it: the roundings that are counted, the decisions about
// scales, the tensors that can be observed. Pointers to stats, scales, scalers, decisions and bins
// are the host's (but for backend_stats): what ops wrote is there after Graph::Collect.
#pragma once
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "core/tensor.h"
#include "core/tensor_names.h"
#include "graph/shared_arena.h"

namespace ada::graph {

// A scale of a tensor's own (delayed scaling), and what it is made of.
// `history` is the host's alone: the trainer feeds it with largest magnitudes, and it says the
// scale of the next step. The scaler is what ops read.
struct TensorScale {
  SharedArray<scaling::TensorScaler> per_tensor_scale;
  scaling::TensorScaleHistory history;
};

// A rounding that is counted: one row of underflow.csv. `scale` null: the tensor carries none (1).
struct RoundingPoint {
  std::string layer;
  std::string tensor;  // y w dx dx2 dw dy p dv ds dq dk or an operand (core/tensor_names.h)
  NumberFormat format;
  const TensorStats* stats;
  const TensorStats* backend_stats;  // the same, for ops
  const float* scale;
  // The tensor's scale (delayed or current), which its values carry in addition to `scale`; null:
  // none.
  scaling::TensorScaler* per_tensor_scale = nullptr;
  const ExponentBins* bins = nullptr;  // null: no histogram is taken of it
  // The block-scaled format of an operand, whose elements have `format`; null: it is plain.
  std::optional<BlockFormat> block = {};
  const BlockCounts* blocks = nullptr;
  AnyFormat named_format() const { return block ? AnyFormat(*block) : AnyFormat(format); }
  // With several processes that share the batch, the one that holds the largest magnitude
  // (Graph::Join of the last pass); a weight is everyone's: -1.
  int largest_at = -1;
  // The factor that its values carry.
  double carried() const {
    return (scale != nullptr ? static_cast<double>(*scale) : 1.0) *
           (per_tensor_scale != nullptr ? static_cast<double>(per_tensor_scale->scale) : 1.0);
  }
};

// A tensor of one layer as it lies in memory when it has been written.
struct ObservedTensor {
  std::string layer;
  std::string tensor;  // x y dy dx dx2 dq dk dv
  Tensor value;
  const float* scale = nullptr;  // S that it carries; null: none
  // Its values come from a rounding that is counted under these names (else it is another layer's
  // tensor, or exact).
  bool rounded = false;
};
// What is shown after each forward op, and (first: after the loss) after each step of the backward
// pass.
// Both are by call: forward[i] belongs to the i-th op, backward[i + 1] to the i-th step.
struct ObservationPlan {
  std::vector<std::vector<ObservedTensor>> forward, backward;
};
// Looks at tensors while a pass runs; changes nothing.
class TensorObserver {
 public:
  virtual ~TensorObserver() = default;
  virtual void Observe(const ObservedTensor& seen, const backend::Pass& pass) = 0;
};

// A decision that is logged: one row of scales.csv, in the order of the backward pass. layer of a
// branch point: the one whose output the branches share; of a gradient of attention: LAYER.ds.
struct ScalePoint {
  std::string layer;
  const scaling::ScaleDecision* decision;
  scaling::LayerScaler* scaler;  // null at a branch point
};

// A tensor with a per-tensor scale: "conv1.y", "input.y", "loss.dx". stats of its last rounding
// (max_abs is of x * scale); null in an evaluation graph.
struct ScaledTensor {
  std::string name;
  TensorScale* scale;
  const TensorStats* stats;
};

// What was counted at the roundings of one layer; a graph that does not train counts nothing.
struct LayerStats {
  TensorStats y, w, dx, dx2, dw, dy;
  TensorStats p, dv, ds, dq, dk;                // of attention
  std::array<TensorStats, kOperands> operands;  // by Operand
  std::array<BlockCounts, kOperands> blocks;    // of those of block-scaled formats
};
// The member of a gradient that is rounded.
inline TensorStats LayerStats::*StatsOf(std::string_view gradient) {
  if (gradient == "dy") return &LayerStats::dy;
  if (gradient == "dx2") return &LayerStats::dx2;
  if (gradient == "dv") return &LayerStats::dv;
  if (gradient == "dq") return &LayerStats::dq;
  if (gradient == "dk") return &LayerStats::dk;
  return &LayerStats::dx;
}

}  // namespace ada::graph
