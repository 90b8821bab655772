// What accumulators did to the sums of a whole run, product by product, and the lines about it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "telemetry/rows.h"

namespace ada::telemetry {

// The rows of one product of one layer.
struct AccumulatorTotals {
  std::string layer, tensor, accumulator;  // that of the last row
  std::int64_t rows = 0, products = 0, swallowed = 0, lost = 0, overflow = 0;
  double bias_sum = 0;
  // Over the rows whose sums had an error: NaN where none had.
  double sqnr_sum = 0;
  std::int64_t sqnr_rows = 0;
  double max_rel = 0;

  void Add(const AccumulatorRow& row);
  double swallowed_pct() const;
  double bias() const;
  double sqnr_db() const;  // mean; inf: no sum had an error
  std::string name() const { return layer + "." + tensor; }
};

// The product whose sums have the smallest signal-to-noise ratio; null: there is none.
const AccumulatorTotals* WorstSums(const std::vector<AccumulatorTotals>& all);

// "sums by hopper_fp8: 0.52 % of products swallowed, bias -0.003; worst conv1.dw: ...", a line for
// each accumulator.
std::vector<std::string> AccumulatorLines(const std::vector<AccumulatorTotals>& all,
                                          const char* file = AccumulatorRow::kFile);
// Adds a row to the totals of its product, which may be new.
void AddSums(const AccumulatorRow& row, std::vector<AccumulatorTotals>& all);

// The figures of one row or total: "3.1 % swallowed, bias -0.02, 23.4 dB".
std::string AccumulatorFigures(double swallowed_pct, double bias, double sqnr_db);

}  // namespace ada::telemetry
