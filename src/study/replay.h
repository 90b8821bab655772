// `ada-train replay`: what a global policy does with a recorded trace. Drives the very object that
// training drives.
#pragma once
#include <cstdint>
#include <iosfwd>
#include <string>

#include "scaling/policies/policy.h"

namespace ada::study {

// Feeds the trace to `policy`, row by row, and writes CSV to `out`: attempt,step,overflow,scale,
// skipped,scale_after,error. Scales read back to the same double. attempt and step go on from those
// of the trace's first row, where it has such columns, else from 1; a retried attempt keeps its
// step (`max_retries` as in RetryRule). The trace has a column `overflow` (0 or 1); a policy that
// wants amax needs `amax` and takes overflow from it where the trace has no such column. Where the
// policy ends the run, `error` of the last row says so and the rest of the trace is not read.
// Throws ConfigError for a policy that needs more than a trace holds, DataError with file and line.
void Replay(scaling::Policy& policy, std::int64_t max_retries, const std::string& trace_path,
            std::ostream& out);

}  // namespace ada::study
