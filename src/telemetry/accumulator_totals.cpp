// Shares are of all logged steps; the worst sums are those with the smallest SQNR.
#include "telemetry/accumulator_totals.h"

#include <cmath>
#include <cstdio>
#include <limits>

#include "io/shown_text.h"
#include "telemetry/block_figures.h"

namespace ada::telemetry {

void AccumulatorTotals::Add(const AccumulatorRow& row) {
  layer = row.layer, tensor = row.tensor, accumulator = row.accumulator;
  ++rows;
  products += row.products, swallowed += row.swallowed;
  lost += row.lost, overflow += row.overflow;
  if (!std::isnan(row.bias)) bias_sum += row.bias;
  if (std::isfinite(row.sqnr_db)) sqnr_sum += row.sqnr_db, ++sqnr_rows;
  if (row.max_rel > max_rel) max_rel = row.max_rel;
}

double AccumulatorTotals::swallowed_pct() const {
  return products == 0 ? 0 : 100.0 * static_cast<double>(swallowed) / static_cast<double>(products);
}
double AccumulatorTotals::bias() const {
  return rows == 0 ? 0 : bias_sum / static_cast<double>(rows);
}
double AccumulatorTotals::sqnr_db() const {
  return sqnr_rows == 0 ? std::numeric_limits<double>::infinity()
                        : sqnr_sum / static_cast<double>(sqnr_rows);
}

const AccumulatorTotals* WorstSums(const std::vector<AccumulatorTotals>& all) {
  const AccumulatorTotals* worst = nullptr;
  for (const AccumulatorTotals& one : all)
    if (worst == nullptr || one.sqnr_db() < worst->sqnr_db()) worst = &one;
  return worst;
}

std::string AccumulatorFigures(double swallowed_pct, double bias, double sqnr_db) {
  char text[96];
  std::snprintf(text, sizeof text, "%.3g %% of products swallowed, bias %.2g, ", swallowed_pct,
                bias);
  return text + DecibelText(sqnr_db) + (std::isfinite(sqnr_db) ? " dB" : "");
}

void AddSums(const AccumulatorRow& row, std::vector<AccumulatorTotals>& all) {
  for (AccumulatorTotals& one : all)
    if (one.layer == row.layer && one.tensor == row.tensor) return one.Add(row);
  all.emplace_back().Add(row);
}

std::vector<std::string> AccumulatorLines(const std::vector<AccumulatorTotals>& all,
                                          const char* file) {
  std::vector<std::string> names, lines;
  for (const AccumulatorTotals& one : all) {
    bool known = false;
    for (const std::string& name : names) known = known || name == one.accumulator;
    if (!known) names.push_back(one.accumulator);
  }
  for (const std::string& name : names) {
    std::vector<AccumulatorTotals> of;
    AccumulatorTotals sum;
    for (const AccumulatorTotals& one : all) {
      if (one.accumulator != name) continue;
      of.push_back(one);
      sum.products += one.products, sum.swallowed += one.swallowed;
      sum.bias_sum += one.bias(), ++sum.rows;
      sum.overflow += one.overflow;
    }
    const AccumulatorTotals& worst = *WorstSums(of);
    char text[96];
    std::snprintf(text, sizeof text, ": %.3g %% of products swallowed, bias %.2g; worst ",
                  sum.swallowed_pct(), sum.bias());
    std::string line = "sums by " + name + text + Visible(worst.name()) + ": " +
                       AccumulatorFigures(worst.swallowed_pct(), worst.bias(), worst.sqnr_db());
    if (sum.overflow > 0) line += "; " + std::to_string(sum.overflow) + " sums overflowed";
    lines.push_back(line + " (" + file + ")");
  }
  return lines;
}

}  // namespace ada::telemetry
