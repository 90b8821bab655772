// Says in words what the rows of a scenario come to.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "telemetry/rows.h"

namespace ada::study {

class WhatIfSummary {
 public:
  explicit WhatIfSummary(std::string scenario) : scenario_(std::move(scenario)) {}
  void Add(const telemetry::WhatIfRow& row);
  // Notes that the policy would have ended the run in `step`, or after the judged step before it.
  void End(std::int64_t step, const std::string& reason);

  // Says how many steps and tensors there were, the tensors that lose most, how far off the shares
  // may be. Lines of at most 100 columns (names apart), each with its end.
  std::string Text() const;

 private:
  struct Tensor {
    std::string name;
    double pct_sum = 0, pct_max = 0, overflow = 0;
    std::int64_t pct_rows = 0, overflow_steps = 0;
    double pct_mean() const { return pct_rows > 0 ? pct_sum / static_cast<double>(pct_rows) : 0; }
  };
  std::string Worst() const;
  std::string Overflows() const;
  std::string Uncertainty() const;

  std::string scenario_, end_;
  std::vector<Tensor> tensors_;
  std::map<std::string, std::size_t> index_;
  std::int64_t first_step_ = 0, last_step_ = 0, steps_ = 0;
  double unsure_pct_ = 0;  // the largest
  std::string unsure_at_;
  bool powers_of_two_ = true;
};

}  // namespace ada::study
