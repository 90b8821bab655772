// The style of every rounding of a graph: its stream of random numbers and, under delayed scaling,
// the scale of its tensor.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "graph/encodings.h"
#include "graph/graph.h"

namespace ada::graph {

// Tensors are named as in the logs: layer ("input" and "loss" are two) and y, w, dx, dw or dy.
class RoundingStyles {
 public:
  // Stochastic only where `training`. Scalers of `share` (may be null) serve this graph too, under
  // the same names; it must outlive this graph.
  RoundingStyles(const Precision& precision, bool training, const Graph* share);

  // The style of one tensor. Its scaler, where it has one, is made at the first call.
  backend::RoundingStyle Of(const std::string& layer, const std::string& tensor,
                            const Encoding& encoding);
  // The scaler of a tensor for which `Of` was called; null: it has none.
  scaling::TensorScaler* ScalerOf(const std::string& layer, const std::string& tensor) const;

  // The scalers that were made here; pointers to them stay valid.
  std::vector<std::unique_ptr<scaling::TensorScaler>> TakeOwned() { return std::move(owned_); }

 private:
  scaling::TensorScaler* FindOrMake(const std::string& name, const NumberFormat& format);

  const bool stochastic_;
  const scaling::TensorScaleRule rule_;
  std::map<std::string, scaling::TensorScaler*> shared_, scalers_;  // by "layer.tensor"
  std::vector<std::unique_ptr<scaling::TensorScaler>> owned_;
};

}  // namespace ada::graph
