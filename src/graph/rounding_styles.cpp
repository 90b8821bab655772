// See rounding_styles.h.
#include "graph/rounding_styles.h"

#include "core/random.h"
#include "core/text.h"

namespace ada::graph {

RoundingStyles::RoundingStyles(const GraphSpec& spec, const Graph* share)
    : stochastic_(spec.precision.stochastic && spec.training),
      counted_(spec.counted),
      histograms_(spec.training ? spec.histograms : std::vector<std::string>{}),
      rule_(spec.precision.tensor_scale) {
  if (!share) return;
  for (const ScaledTensor& tensor : share->scaled_tensors()) {
    shared_.emplace(tensor.name, tensor.scaler);
  }
}

scaling::TensorScaler* RoundingStyles::FindOrMake(const std::string& name,
                                                  const NumberFormat& format) {
  scaling::TensorScaler*& scaler = scalers_[name];
  if (scaler) return scaler;
  if (const auto found = shared_.find(name); found != shared_.end()) {
    return scaler = found->second;
  }
  owned_.push_back(std::make_unique<scaling::TensorScaler>());
  scaler = owned_.back().get();
  scaler->rule = rule_;
  scaler->rule.format_max = format.largest();
  return scaler;
}

backend::RoundingStyle RoundingStyles::Of(const std::string& layer, const std::string& tensor,
                                          const Encoding& encoding) {
  backend::RoundingStyle style;
  style.stochastic = stochastic_ && encoding.format != kFp32;
  style.stream = StreamId("round:" + layer + "." + tensor);
  const std::string name = layer + "." + tensor;
  if (encoding.own_scale) style.scaler = FindOrMake(name, encoding.format);
  style.counted = Contains(counted_, tensor);
  if (Contains(histograms_, tensor) && layer != "input") style.bins = FindOrMakeBins(name);
  return style;
}

ExponentBins* RoundingStyles::FindOrMakeBins(const std::string& name) {
  ExponentBins*& bins = bins_[name];
  if (!bins) {
    owned_bins_.push_back(std::make_unique<ExponentBins>());
    bins = owned_bins_.back().get();
  }
  return bins;
}

const ExponentBins* RoundingStyles::BinsOf(const std::string& layer,
                                           const std::string& tensor) const {
  const auto found = bins_.find(layer + "." + tensor);
  return found == bins_.end() ? nullptr : found->second;
}

scaling::TensorScaler* RoundingStyles::ScalerOf(const std::string& layer,
                                                const std::string& tensor) const {
  const auto found = scalers_.find(layer + "." + tensor);
  return found == scalers_.end() ? nullptr : found->second;
}

}  // namespace ada::graph
