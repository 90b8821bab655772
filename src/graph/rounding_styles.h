// The style of every rounding of a graph: its stream of random numbers, its per-tensor scale under
// delayed scaling, and its histogram if one is filled.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/network/tensor_storage.h"

namespace ada::graph {

// Tensors are named as in the logs: layer ("input" and "loss" are two) and y, w, dx, dw or dy.
// The builder owns it while it builds; the scales that it made move into the graph (TakeOwned).
class RoundingStyles {
 public:
  // Reads precision, training, counted and histograms of `spec`. Rounding is stochastic, and
  // histograms are filled, only in a graph that trains. Per-tensor scales of `share` (may be null)
  // are used by this graph too, under the same names; `share` must outlive this graph. New objects
  // are allocated in the arenas.
  RoundingStyles(const GraphSpec& spec, const Graph* share, SharedArena& per_tensor_scales,
                 SharedArena& results, SharedArena& bins);

  // The style of one tensor. Its per-tensor scale, where it has one, is made at the first call.
  backend::RoundingStyle Of(const std::string& layer, const std::string& tensor,
                            const TensorStorage& stored_as);
  // The style of the rounding of a matmul's operand; without pointers for counts.
  backend::OperandRounding OperandOf(const std::string& layer, Operand operand,
                                     const LayerOperands& operands);
  backend::OperandRounding OperandOf(const std::string& layer, AttentionOperand operand,
                                     const LayerOperands& operands);
  // The current scale of an operand for which OperandOf was called, at the host's address; null: it
  // has none.
  scaling::TensorScaler* CurrentScaleOf(const std::string& layer, const std::string& operand) const;
  // The per-tensor scale of a tensor for which `Of` was called; null: it has none.
  TensorScale* ScaleOf(const std::string& layer, const std::string& tensor) const;
  // Its histogram, at the host's address; null: it has none.
  const ExponentBins* BinsOf(const std::string& layer, const std::string& tensor) const;

  // The scales that this object made; pointers to them stay valid.
  std::vector<std::unique_ptr<TensorScale>> TakeOwned() { return std::move(owned_); }

 private:
  // of: the operand whose random words and scale it has. fixed: its scale of kind static.
  backend::OperandRounding RoundingOf(const std::string& layer, const std::string& operand,
                                      const std::string& of, const OperandRule& rule, double fixed);
  TensorScale* FindOrMake(const std::string& name, const NumberFormat& format,
                          const scaling::TensorScaleRule& rule);
  ExponentBins* FindOrMakeBins(const std::string& name);  // the backend's

  const bool training_, stochastic_;
  const std::vector<std::string> counted_, histograms_;
  const scaling::TensorScaleRule rule_;
  SharedArena &per_tensor_scales_, &results_, &bins_arena_;
  std::map<std::string, TensorScale*> shared_, scales_;  // by "layer.tensor"
  std::vector<std::unique_ptr<TensorScale>> owned_;
  std::map<std::string, SharedArray<ExponentBins>> bins_;  // by "layer.tensor"
  std::map<std::string, SharedArray<scaling::TensorScaler>> current_;
};

}  // namespace ada::graph
