// What a graph offers for logging: the roundings that are counted, the decisions about scales, the
// tensors that can be observed. Pointers to stats, scales, scalers, decisions and bins are to host
// memory (except backend_stats), which is up to date after Graph::Collect.
#pragma once
#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "graph/shared_arena.h"
#include "io/tensor_names.h"
#include "number/tensor.h"

namespace ada::graph {

// The per-tensor scale of a tensor (delayed scaling), and the history that it is computed from.
// Only the host uses `history`: the trainer adds largest magnitudes to it, and it gives the scale
// of the next step. Ops read the scaler.
struct TensorScale {
  SharedArray<scaling::TensorScaler> per_tensor_scale;
  scaling::TensorScaleHistory history;
};

// A rounding that is counted: one row of underflow.csv. `scale` null: the tensor carries none (1).
struct RoundingPoint {
  std::string layer;
  std::string tensor;  // y w dx dx2 dw dy p dv ds dq dk or an operand (io/tensor_names.h)
  NumberFormat format;
  const TensorStats* stats;
  const TensorStats* backend_stats;  // the same, for ops
  const float* scale;
  // The per-tensor scale (delayed or current), which the values carry in addition to `scale`; null:
  // there is none.
  scaling::TensorScaler* per_tensor_scale = nullptr;
  const ExponentBins* bins = nullptr;  // null: no histogram is taken of it
  // The block-scaled format of an operand, whose elements have `format`; null: it is plain.
  std::optional<BlockFormat> block = {};
  const BlockCounts* blocks = nullptr;
  backend::HadamardRule hadamard;  // of a block-scaled operand, before it is rounded
  // An operand may have scales of rows, and the blocks or rows of another one; unset: its own.
  bool row_scaled = false;
  std::optional<Operand> laid_as = {};
  AnyFormat named_format() const { return block ? AnyFormat(*block) : AnyFormat(format); }
  // Where several processes share the batch, the one with the largest magnitude (Graph::Join of the
  // last pass); -1 for a weight, which all of them have.
  int largest_at = -1;
  double per_tensor_factor() const {
    return per_tensor_scale != nullptr ? static_cast<double>(per_tensor_scale->scale) : 1.0;
  }
  // S, which the values that `stats` and `blocks` are of carry.
  double carried() const { return scale != nullptr ? static_cast<double>(*scale) : 1.0; }
  // The factor by which its values are multiplied when they are rounded.
  double total_scale() const { return carried() * per_tensor_factor(); }
  // The largest magnitude as it was rounded.
  float scaled_largest() const {
    return per_tensor_scale != nullptr ? stats->max_abs * per_tensor_scale->scale : stats->max_abs;
  }
  // The scales of rows bring their largest magnitudes into the format.
  bool leaves_format() const {
    if (row_scaled) return !std::isfinite(stats->max_abs);
    return !std::isfinite(RoundTo(format, scaled_largest()));
  }
};

// Sums of one product that an accumulator makes: one row of accumulators.csv.
struct SumPoint {
  std::string layer;
  scaling::Product product;
  scaling::Accumulator rule;
  const scaling::AccumulatorCounts* counts;
  std::size_t judged = 0;  // of a rule that is judged: its index
};

// A tensor of one layer in memory, when it has been written.
struct ObservedTensor {
  std::string layer;
  std::string tensor;  // x y dy dx dx2 dq dk dv
  Tensor value;
  const float* scale = nullptr;  // S that it carries; null: none
  // Whether its values come from a rounding that is counted under these names (otherwise it is
  // another layer's tensor, or exact).
  bool rounded = false;
};
// The tensors to show after each forward op, and after the loss and each step of the backward pass.
// Indexed by call: forward[i] belongs to the i-th op, backward[0] to the loss, and backward[i + 1]
// to the i-th step.
struct ObservationPlan {
  std::vector<std::vector<ObservedTensor>> forward, backward;
};
// Looks at tensors while a pass runs; changes nothing.
class TensorObserver {
 public:
  virtual ~TensorObserver() = default;
  virtual void Observe(const ObservedTensor& seen, const backend::Pass& pass) = 0;
};

// A decision that is logged: one row of scales.csv, in the order of the backward pass. layer: for a
// branch point the layer whose output the branches share; for a gradient of attention LAYER.ds.
struct ScalePoint {
  std::string layer;
  const scaling::ScaleDecision* decision;
  scaling::LayerScaler* scaler;  // null at a branch point
};

// A tensor with a per-tensor scale: "conv1.y", "input.y", "loss.dx". stats: of its last rounding;
// null in an evaluation graph.
struct ScaledTensor {
  std::string name;
  TensorScale* scale;
  const TensorStats* stats;
};

// What was counted at one layer's roundings; a graph that does not train counts nothing.
struct LayerStats {
  TensorStats y, w, dx, dx2, dw, dy;
  TensorStats p, dv, ds, dq, dk;                // of attention
  std::array<TensorStats, kOperands> operands;  // by Operand
  std::array<BlockCounts, kOperands> blocks;    // of those of block-scaled formats
  std::array<scaling::AccumulatorCounts, scaling::kProducts> sums;  // by scaling::Product
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
