// What the record says of sums: of the accumulators that the run had, and of those of log.what_if.
#include <map>

#include "study/recommend/recommendation.h"
#include "study/run_files.h"
#include "study/text_table.h"
#include "telemetry/accumulator_totals.h"

namespace ada::study {
namespace {

void PrintLines(const std::vector<telemetry::AccumulatorTotals>& all, const char* file,
                const std::string& begin, std::ostream& out) {
  for (const std::string& line : telemetry::AccumulatorLines(all, file))
    PrintWrapped(begin + line, 2, out);
}

}  // namespace

void PrintSums(const std::string& folder, std::ostream& out) {
  if (HasFile(folder, AccumulatorRow::kFile)) {
    std::vector<telemetry::AccumulatorTotals> all;
    EachRow<AccumulatorRow>(folder,
                            [&](const AccumulatorRow& row) { telemetry::AddSums(row, all); });
    PrintLines(all, AccumulatorRow::kFile, "", out);
    if (!all.empty()) out << '\n';
  }
  using telemetry::WhatIfAccumulatorRow;
  if (!HasFile(folder, WhatIfAccumulatorRow::kFile)) return;
  std::map<std::string, std::vector<telemetry::AccumulatorTotals>> scenarios;
  EachRow<WhatIfAccumulatorRow>(folder, [&](const WhatIfAccumulatorRow& row) {
    telemetry::AddSums(row, scenarios[row.scenario]);
  });
  for (const auto& [name, all] : scenarios)
    PrintLines(all, WhatIfAccumulatorRow::kFile, "what if: ", out);
  if (!scenarios.empty()) out << '\n';
}

}  // namespace ada::study
