// `ada-train what-if`: from the histograms of a run, what another format, scale or policy would
// have lost, tensor by tensor and step by step. Trains nothing.
#pragma once
#include <iosfwd>
#include <optional>
#include <string>

#include "config/load.h"
#include "core/number_format.h"

namespace ada::study {

struct WhatIfOptions {
  std::string folder;
  std::optional<NumberFormat> format;  // unset: each tensor's own
  std::optional<double> scale;  // that the tensor would carry; unset: its own, or the policy's
  std::string policy;           // empty: none is asked about
  config::Overrides overrides;  // keys of `scaling` under that policy
};

// Writes CSV with the columns of what_if.csv to `out` and what a reader must know to `notes`.
// Throws DataError where the run has no histograms, ConfigError for the options.
void WhatIf(const WhatIfOptions& options, std::ostream& out, std::ostream& notes);

}  // namespace ada::study
