// Whether top-5 says anything.
#pragma once

namespace ada::telemetry {

// Returns whether some class may be missing among the five likeliest. `classes` 0: not known.
constexpr bool TopFiveTells(int classes) { return classes == 0 || classes > 5; }

}  // namespace ada::telemetry
