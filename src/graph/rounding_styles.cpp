// See rounding_styles.h.
#include "graph/rounding_styles.h"

#include "core/random.h"

namespace ada::graph {

RoundingStyles::RoundingStyles(const Precision& precision, bool training, const Graph* share)
    : stochastic_(precision.stochastic && training), rule_(precision.tensor_scale) {
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
  if (encoding.own_scale) style.scaler = FindOrMake(layer + "." + tensor, encoding.format);
  return style;
}

scaling::TensorScaler* RoundingStyles::ScalerOf(const std::string& layer,
                                                const std::string& tensor) const {
  const auto found = scalers_.find(layer + "." + tensor);
  return found == scalers_.end() ? nullptr : found->second;
}

}  // namespace ada::graph
