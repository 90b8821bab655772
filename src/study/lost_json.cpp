// The sentence of telemetry/coverage.h, and what it is made of.
#include "study/lost_json.h"

namespace ada::study {

OrderedJson LostJson(const telemetry::LayerTotals& layers, const telemetry::Coverage& coverage) {
  OrderedJson json;
  json["text"] = telemetry::LostText(layers, coverage);
  json["counted"] = coverage.counted;
  json["not_counted"] = coverage.uncounted;
  json["logged_steps"] = coverage.logged_steps;
  json["steps"] = coverage.steps;
  json["most"] = OrderedJson();
  if (const telemetry::TensorTotals* most = telemetry::LostMost(layers))
    json["most"] = {{"tensor", most->layer + "." + most->tensor},
                    {"format", most->last_format},
                    {"scale", most->last_scale},
                    {"mean_pct", most->lost_mean()},
                    {"max_pct", most->lost_max}};
  return json;
}

}  // namespace ada::study
