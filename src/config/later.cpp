// The list, by dotted path.
#include "config/later.h"

#include <set>

namespace ada::config {

bool IsLaterKey(const std::string& path) {
  static const std::set<std::string> kKeys = {
      "precision.activations",
      "precision.weights",
      "precision.gradients",
      "precision.weight_gradients",
      "precision.layers",
      "precision.rounding",
      "precision.tensor_scaling",
      "precision.overflow",
      "scaling.hysteresis",
      "scaling.consecutive_hysteresis",
      "scaling.error_at_min_scale",
      "scaling.tolerance",
      "scaling.headroom_bits",
      "scaling.reference",
      "scaling.update_period",
      "scaling.bin_edge",
      "scaling.threshold",
      "scaling.beta1",
      "scaling.beta2",
      "scaling.overflow_std_dev",
      "scaling.log_max",
      "scaling.layers[].init_scale",
      "scaling.layers[].growth_factor",
      "scaling.layers[].backoff_factor",
      "scaling.layers[].growth_interval",
      "scaling.layers[].min_scale",
      "scaling.layers[].max_scale",
      "scaling.layers[].headroom_bits",
      "train.max_retries",
      "log.probe_every",
      "log.histogram_every",
      "log.dump_every",
      "log.dump",
      "log.what_if",
      "log.alert_underflow_pct",
      "log.tensorboard",
  };
  return kKeys.contains(path);
}

}  // namespace ada::config
