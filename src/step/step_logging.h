// Which attempts are written down, how closely they are looked at for it, and the log that a
// trainer tells of each.
#pragma once
#include <cstdint>
#include <string>

#include "config/config.h"

namespace ada::step {

struct Attempt;

// Whether a step is one of those of an `every_*` key: step 1 and the multiples; 0: never.
bool IsDue(std::int64_t every, std::int64_t step);

// Which steps are written down, and how closely they are looked at for it. The trainer and the log
// each have one, and so decide alike. It refers to the configuration, which outlives it.
class LogSchedule {
 public:
  explicit LogSchedule(const config::Config& config) : config_(config) {}

  // A step of log.every, or one that is probed, dumped or has histograms.
  bool Logs(std::int64_t step) const;
  bool TakesHistograms(std::int64_t step) const;
  // A logged step whose tensors are counted: log.statistics is not empty.
  bool Counts(std::int64_t step) const;
  // A logged step whose updates are counted: they are in log.statistics, muon's, or masters or the
  // optimizer's state are not fp32.
  bool CountsUpdates(std::int64_t step) const;

 private:
  const config::Config& config_;
};

// The tensors that the events of a step name; layer empty: no such event, or it names none.
struct StepNews {
  bool skip = false, alert = false;
  std::string skip_layer, alert_layer;
};

// A trainer calls it after every attempt (record::StepLog).
class AttemptLog {
 public:
  virtual ~AttemptLog() = default;
  // Returns which of the events that dumps wait for happened in the step. OutputError where a log
  // cannot be written.
  virtual StepNews Write(const Attempt& attempt) = 0;
};

}  // namespace ada::step
