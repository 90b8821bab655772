// The list, by dotted path.
#include "config/later.h"

#include <set>

namespace ada::config {

bool IsLaterKey(const std::string& path) {
  static const std::set<std::string> kKeys = {
      "log.probe_every", "log.histogram_every",     "log.dump_every",  "log.dump",
      "log.what_if",     "log.alert_underflow_pct", "log.tensorboard",
  };
  return kKeys.contains(path);
}

}  // namespace ada::config
