// What the record says of matmuls: block-scaled formats for operands, and sums by accumulators;
// those of log.what_if, and the run's own.
#include <map>
#include <ostream>

#include "config/load.h"
#include "io/shown_text.h"
#include "io/tensor_names.h"
#include "study/recommend/recommendation.h"
#include "study/run_files.h"
#include "study/text_table.h"
#include "telemetry/accumulator_totals.h"

namespace ada::study {
namespace {

void PrintSumsOf(const std::vector<telemetry::AccumulatorTotals>& all, const char* file,
                 const std::string& begin, std::ostream& out) {
  for (const std::string& line : telemetry::AccumulatorLines(all, file))
    PrintWrapped(begin + line, 2, out);
}

}  // namespace

std::vector<judge::JudgedFormat> ReadJudgedFormats(const std::string& folder, double target,
                                                   OperandsOf of) {
  std::map<std::string, judge::JudgedFormat> all;
  const auto each = [&](const auto& row) {
    if (IsAttentionOperand(row.tensor) != (of == OperandsOf::kAttention)) return;
    judge::JudgedFormat& judged = all[row.format];
    if (judged.format.empty()) {
      judged.format = row.format;
      const AnyFormat read =
          FormatOfRow(folder, row.kFile, row.step, row.format, config::ReadAnyFormat);
      if (const auto* block = std::get_if<BlockFormat>(&read)) judged.bits = BitsPerValue(*block);
    }
    judged.Add(row, row.layer, row.tensor, target);
  };
  EachRowIfThere<telemetry::WhatIfBlockRow>(folder, each);
  EachRowIfThere<BlockRow>(folder, each);
  std::vector<judge::JudgedFormat> judged;
  for (auto& [name, one] : all) judged.push_back(std::move(one));
  judge::SortByBits(judged);
  return judged;
}

void PrintOperandFormats(const std::vector<judge::JudgedFormat>& judged, OperandsOf of,
                         std::ostream& out) {
  if (judged.empty()) return;
  const bool attention = of == OperandsOf::kAttention;
  out << "Block-scaled operands" << (attention ? " of attention" : "")
      << ", the narrowest first:\n";
  for (const judge::JudgedFormat& one : judged)
    out << "  " << Visible(one.format) << ' ' << Visible(one.Text()) << '\n';
  if (const judge::JudgedFormat* best = judge::FirstServing(judged))
    out << "  narrow enough and no more: precision: {operands: "
        << (attention ? "{attention: " : "") << Visible(best->format) << (attention ? "}}" : "}")
        << "\n\n";
  else
    out << "  none serves all; precision.layers may leave layers out (operands: none)\n\n";
}

void PrintSums(const std::string& folder, std::ostream& out) {
  std::vector<telemetry::AccumulatorTotals> own;
  EachRowIfThere<AccumulatorRow>(folder,
                                 [&](const AccumulatorRow& row) { telemetry::AddSums(row, own); });
  PrintSumsOf(own, AccumulatorRow::kFile, "", out);
  if (!own.empty()) out << '\n';
  using telemetry::WhatIfAccumulatorRow;
  std::map<std::string, std::vector<telemetry::AccumulatorTotals>> scenarios;
  EachRowIfThere<WhatIfAccumulatorRow>(folder, [&](const WhatIfAccumulatorRow& row) {
    telemetry::AddSums(row, scenarios[row.scenario]);
  });
  for (const auto& [name, all] : scenarios)
    PrintSumsOf(all, WhatIfAccumulatorRow::kFile, "what if: ", out);
  if (!scenarios.empty()) out << '\n';
}

}  // namespace ada::study
