#include "graph/rounding_styles.h"

#include "core/random.h"
#include "core/tensor_names.h"
#include "core/text.h"

namespace ada::graph {

RoundingStyles::RoundingStyles(const GraphSpec& spec, const Graph* share, SharedArena& own_scales,
                               SharedArena& bins)
    : stochastic_(spec.precision.stochastic && spec.training),
      counted_(spec.counted),
      histograms_(spec.training ? spec.histograms : std::vector<std::string>{}),
      rule_(spec.precision.tensor_scale),
      own_scales_(own_scales),
      bins_arena_(bins) {
  if (!share) return;
  for (const ScaledTensor& t : share->scaled_tensors()) shared_[t.name] = t.scale;
}

TensorScale* RoundingStyles::FindOrMake(const std::string& name, const NumberFormat& format) {
  TensorScale*& scale = scales_[name];
  if (scale) return scale;
  if (const auto found = shared_.find(name); found != shared_.end()) return scale = found->second;
  owned_.push_back(std::make_unique<TensorScale>());
  scale = owned_.back().get();
  scale->own_scale = own_scales_.Add<scaling::TensorScaler>();
  scale->history.rule = rule_;
  scale->history.rule.format_max = format.largest();
  return scale;
}

backend::RoundingStyle RoundingStyles::Of(const std::string& layer, const std::string& tensor,
                                          const TensorStorage& stored_as) {
  backend::RoundingStyle style;
  style.stochastic = stochastic_ && stored_as.format != kFp32;
  style.stream = StreamId("round:" + layer + "." + tensor);
  const std::string name = layer + "." + tensor;
  if (stored_as.has_own_scale)
    style.own_scale = FindOrMake(name, stored_as.format)->own_scale.backend;
  style.counted = Contains(counted_, StatisticOf(tensor));
  if (Contains(histograms_, StatisticOf(tensor)) && layer != "input")
    style.bins = FindOrMakeBins(name);
  return style;
}

ExponentBins* RoundingStyles::FindOrMakeBins(const std::string& name) {
  SharedArray<ExponentBins>& bins = bins_[name];
  if (bins.count == 0) bins = bins_arena_.Add<ExponentBins>();
  return bins.backend;
}

const ExponentBins* RoundingStyles::BinsOf(const std::string& layer,
                                           const std::string& tensor) const {
  const auto found = bins_.find(layer + "." + tensor);
  return found == bins_.end() ? nullptr : found->second.host;
}

TensorScale* RoundingStyles::ScaleOf(const std::string& layer, const std::string& tensor) const {
  const auto found = scales_.find(layer + "." + tensor);
  return found == scales_.end() ? nullptr : found->second;
}

}  // namespace ada::graph
