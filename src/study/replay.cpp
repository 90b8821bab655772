#include "study/replay.h"

#include <array>
#include <cmath>
#include <ostream>

#include "core/error.h"
#include "study/trace.h"
#include "telemetry/csv.h"

namespace ada::study {
namespace {

void ExpectGlobal(const scaling::Policy& policy) {
  for (const std::string_view global : {"none", "fixed", "dynamic", "logmax"})
    if (policy.name() == global) return;
  throw ConfigError("scaling.policy: " + std::string(policy.name()) +
                    " decides from the gradients themselves, which a trace does not hold; replay "
                    "takes none, fixed, dynamic and logmax");
}

void ExpectColumns(const TraceReader& trace, bool wants_amax) {
  if (wants_amax) {
    trace.Expect("amax", "policy logmax needs: the largest unscaled gradient of each attempt");
  } else {
    trace.Expect("overflow",
                 "replay needs: 1 where an attempt's gradients were not finite, else 0");
  }
}

scaling::StepOutcome AttemptOf(const TraceReader& trace, bool wants_amax) {
  scaling::StepOutcome attempt;
  if (trace.Has("overflow")) attempt.overflow = trace.Flag("overflow");
  if (wants_amax) {
    attempt.amax = trace.Magnitude("amax");
    attempt.overflow = attempt.overflow || !std::isfinite(attempt.amax);
  }
  return attempt;
}

// StepOutcome and step numbers of the first row.
std::array<std::int64_t, 2> FirstNumbers(const TraceReader& trace) {
  const bool attempt = trace.Has("attempt"), step = trace.Has("step");
  if (!attempt && !step) return {1, 1};
  return {trace.Integer(attempt ? "attempt" : "step"), trace.Integer(step ? "step" : "attempt")};
}

}  // namespace

void Replay(scaling::Policy& policy, std::int64_t max_retries, const std::string& trace_path,
            std::ostream& out) {
  ExpectGlobal(policy);
  TraceReader trace(trace_path);
  const bool wants_amax = policy.RequiredStats().amax;
  ExpectColumns(trace, wants_amax);
  out << "attempt,step,overflow,scale,skipped,scale_after,error\n";
  scaling::RetryRule retry(max_retries);
  std::int64_t number = 0, step = 0;
  for (bool first = true; trace.Next(); first = false) {
    if (first) {
      const auto numbers = FirstNumbers(trace);
      number = numbers[0];
      step = numbers[1];
    }
    const scaling::StepOutcome attempt = AttemptOf(trace, wants_amax);
    const scaling::ScaleUpdate verdict = policy.Update(attempt);
    const bool skipped = verdict.action == scaling::Action::kSkip;
    out << number << ',' << step << ',' << attempt.overflow << ','
        << telemetry::Exact(verdict.before) << ',' << skipped << ','
        << telemetry::Exact(verdict.after) << ',' << telemetry::CsvField(verdict.error) << '\n';
    if (!verdict.error.empty()) return;
    ++number;
    if (!retry.Next(skipped)) ++step;
  }
}

}  // namespace ada::study
