// The style of every rounding of a graph: its stream of random numbers, under delayed scaling the
// scale of its tensor, and its histogram where one is taken.
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
  // Of `spec`: precision, training, counted, histograms. Stochastic, and with histograms, only
  // where it trains. Scalers of `share` (may be null) serve this graph too, under the same names;
  // it must outlive this graph.
  RoundingStyles(const GraphSpec& spec, const Graph* share);

  // The style of one tensor. Its scaler, where it has one, is made at the first call.
  backend::RoundingStyle Of(const std::string& layer, const std::string& tensor,
                            const Encoding& encoding);
  // The scaler of a tensor for which `Of` was called; null: it has none.
  scaling::TensorScaler* ScalerOf(const std::string& layer, const std::string& tensor) const;
  // The same of its histogram.
  const ExponentBins* BinsOf(const std::string& layer, const std::string& tensor) const;

  // The scalers and histograms that were made here; pointers to them stay valid.
  std::vector<std::unique_ptr<scaling::TensorScaler>> TakeOwned() { return std::move(owned_); }
  std::vector<std::unique_ptr<ExponentBins>> TakeBins() { return std::move(owned_bins_); }

 private:
  scaling::TensorScaler* FindOrMake(const std::string& name, const NumberFormat& format);

  ExponentBins* FindOrMakeBins(const std::string& name);

  const bool stochastic_;
  const std::vector<std::string> counted_, histograms_;
  const scaling::TensorScaleRule rule_;
  std::map<std::string, scaling::TensorScaler*> shared_, scalers_;  // by "layer.tensor"
  std::vector<std::unique_ptr<scaling::TensorScaler>> owned_;
  std::map<std::string, ExponentBins*> bins_;  // by "layer.tensor"
  std::vector<std::unique_ptr<ExponentBins>> owned_bins_;
};

}  // namespace ada::graph
