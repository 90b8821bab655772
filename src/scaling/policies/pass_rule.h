// The rule of layers under the policies with one global scale.
#pragma once
#include "scaling/policies/policy.h"

namespace ada::scaling {

// Alpha 1: the layer passes S on.
inline LayerRule PassRule(const LayerInfo& layer) {
  LayerRule rule;
  rule.u_min = layer.u_min;
  rule.u_max = layer.u_max;
  rule.has_weight = layer.has_weight;
  return rule;
}

}  // namespace ada::scaling
