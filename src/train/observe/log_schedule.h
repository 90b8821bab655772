// Which steps are written down, and how closely they are looked at for it.
#pragma once
#include <cstdint>

#include "config/config.h"

namespace ada::train {

// Whether a step is one of those of an `every_*` key: step 1 and the multiples; 0: never.
bool IsDue(std::int64_t every, std::int64_t step);

// The trainer and the log each have one, and so decide alike. It refers to the configuration, which
// outlives it.
class LogSchedule {
 public:
  explicit LogSchedule(const config::Config& config) : config_(config) {}

  // A step of log.every, or one that is probed, dumped or has histograms.
  bool Logs(std::int64_t step) const;
  bool TakesHistograms(std::int64_t step) const;
  // A logged step whose tensors are counted: log.statistics is not empty.
  bool Counts(std::int64_t step) const;
  // A logged step whose updates are counted: they are in log.statistics, or masters or the
  // optimizer's state are not fp32.
  bool CountsUpdates(std::int64_t step) const;

 private:
  const config::Config& config_;
};

}  // namespace ada::train
