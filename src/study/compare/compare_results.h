// What two runs came to: status, metrics and speed.
#pragma once
#include <iosfwd>
#include <string>

#include "telemetry/run_totals.h"

namespace ada::study {

struct RunResults {
  std::string state;            // as RunState says
  telemetry::RunTotals totals;  // from the CSVs, so that a run that goes on has them as well
  double seconds = 0, images_per_second = 0;  // of summary.json; 0: none yet
};

// Throws DataError for files that are missing or broken.
RunResults ReadResults(const std::string& folder);

// A table of both and the differences.
void PrintResults(const RunResults& a, const RunResults& b, std::ostream& out);

}  // namespace ada::study
