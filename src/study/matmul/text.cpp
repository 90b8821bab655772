// The tables and the JSON of the command matmul.
#include "io/text.h"

#include <cmath>
#include <ostream>

#include "study/matmul/products.h"
#include "study/output.h"
#include "study/text_table.h"

namespace ada::study {
namespace {

constexpr std::size_t kFormatWidth = 24;

std::string Small(double value) {
  if (std::isnan(value)) return "-";
  return value == 0 ? "0" : Formatted("%.1e", value);
}

std::string SizeText(const MatmulRow& row) {
  return std::to_string(row.rows) + "x" + std::to_string(row.columns) + " of " +
         std::to_string(row.terms);
}

void PrintMatmulOperands(const std::vector<MatmulRow>& rows, std::ostream& out) {
  out << "operands (lost: of the values other than zero, in %; satur.: values; SQNR in dB; log2 "
         "of\nscales)\n";
  TextTable table({"matmul", "tensor", "format", "lost", "satur.", "SQNR", "scales"}, 3);
  for (const MatmulRow& row : rows) {
    if (row.is_result) continue;
    table.Row({row.matmul, row.tensor, CutText(row.format, kFormatWidth),
               PctText(row.lost_pct_nonzero), std::to_string(row.saturated),
               telemetry::DecibelText(row.sqnr_db), telemetry::ScalesText(row)});
  }
  table.Print(out, kTerminalWidth);
}

void PrintSumsTable(const std::vector<MatmulRow>& rows, std::ostream& out) {
  out << "sums (SQNR in dB: of exact sums of the operands, of the sums, and of both; largest\n"
         "error over the sum of magnitudes; mean error over the mean magnitude)\n";
  TextTable table({"sum", "size", "operands", "sums", "both", "max_rel", "bias", "lost"}, 2);
  for (const MatmulRow& row : rows) {
    if (!row.is_result) continue;
    table.Row({row.tensor, SizeText(row), telemetry::DecibelText(row.operands_sqnr_db),
               telemetry::DecibelText(row.sums_sqnr_db), telemetry::DecibelText(row.sqnr_db),
               Small(row.max_rel), Small(row.bias), std::to_string(row.lost)});
  }
  table.Print(out, kTerminalWidth);
  for (const MatmulRow& row : rows)
    if (row.is_result && row.accumulator != "fp32")
      PrintWrapped(row.tensor + ": sums by " + row.accumulator + ", " + PctText(row.swallowed_pct) +
                       " % of " + std::to_string(row.products) + " products swallowed",
                   2, out);
}

}  // namespace

void PrintMatmuls(const std::vector<MatmulRow>& rows, std::ostream& out) {
  PrintMatmulOperands(rows, out);
  PrintSumsTable(rows, out);
}

void PrintMatmulJson(const std::string& layer, const std::vector<MatmulRow>& rows,
                     std::ostream& out) {
  OrderedJson document;
  document["layer"] = layer;
  document["rows"] = OrderedJson::array();
  for (const MatmulRow& row : rows) document["rows"].push_back(RowJson(row));
  PrintJson(document, out);
}

}  // namespace ada::study
