// `ada-train compare`: two runs side by side in the terminal.
#pragma once
#include <iosfwd>
#include <string>

namespace ada::study {

// Differences of the configurations, metrics, scale and underflow per layer side by side, and the
// first step at which the runs part. Throws DataError where one of them is no run.
void Compare(const std::string& a, const std::string& b, std::ostream& out);

}  // namespace ada::study
