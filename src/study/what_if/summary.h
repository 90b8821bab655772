// Summarizes the rows of a scenario in words.
#pragma once
#include <cmath>
#include <cstdint>
#include <iosfwd>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "telemetry/rows.h"

namespace ada::study {

// Add for each row of a scenario in the order of steps, then Text or PrintTable once.
class WhatIfSummary {
 public:
  explicit WhatIfSummary(std::string scenario) : scenario_(std::move(scenario)) {}
  // What is known of the tensor of a row in the run itself.
  struct Recorded {
    double pct = NAN;  // that would be lost if nothing changed, for the table
    bool not_finite = false;
  };
  void Add(const telemetry::WhatIfRow& row, const Recorded& recorded);
  // Takes what the run itself lost in a step that was judged, for the table; others are passed
  // over.
  void AddLogged(const telemetry::TensorRow& row);
  // Notes that the policy would have ended the run in `step`, or after the judged step before it.
  void End(std::int64_t step, const std::string& reason);

  // Says how many steps and tensors there were, the tensors that lose most, how far off the shares
  // may be. Lines of at most 100 columns (names apart), each with its end.
  std::string Text() const;
  // Prints the same for a terminal of 80 columns: a table of the tensors that lose anything, the
  // worst first and not more than a screen has, `note` (lines), and what all come to.
  void PrintTable(const std::string& note, std::ostream& out) const;

 private:
  // Sums over the rows of one tensor; rows without finite values other than zero have no share and
  // are not counted.
  struct Tensor {
    std::string name;
    bool is_dx = false;
    double pct_sum = 0, pct_max = 0, overflow = 0, unchanged_sum = 0, logged_sum = 0;
    double scale_low = INFINITY, scale_high = 0;
    std::int64_t pct_rows = 0, logged_rows = 0, overflow_steps = 0, not_finite_rows = 0;
    double pct_mean() const { return pct_rows > 0 ? pct_sum / static_cast<double>(pct_rows) : 0; }
    double logged_mean() const {
      return logged_rows > 0 ? logged_sum / static_cast<double>(logged_rows) : 0;
    }
  };
  std::vector<const Tensor*> WorstFirst() const;
  void PrintRows(std::ostream& out) const;
  std::string FirstLine() const;
  std::string DxLine() const;
  std::string Worst() const;
  std::string Overflows() const;
  std::string Uncertainty() const;

  std::string scenario_, end_;
  std::vector<Tensor> tensors_;
  std::map<std::string, std::size_t> index_;
  std::set<std::int64_t> judged_;
  std::int64_t first_step_ = 0, last_step_ = 0, steps_ = 0;
  double unsure_pct_ = 0;  // the largest
  std::string unsure_at_;
  std::int64_t overflow_unsure_ = 0;  // values
  bool powers_of_two_ = true;
};

}  // namespace ada::study
