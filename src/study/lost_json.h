// What was counted of a run and what that lost, as the JSON of every command has it.
#pragma once
#include "io/json_output.h"
#include "telemetry/coverage.h"

namespace ada::study {

// text, counted, not_counted, logged_steps, steps, and most: the tensor that lost most (null: none
// lost a value).
OrderedJson LostJson(const telemetry::LayerTotals& layers, const telemetry::Coverage& coverage);

}  // namespace ada::study
