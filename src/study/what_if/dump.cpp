// what-if --dump: what formats would lose of the operands of a dump's products, and accumulators of
// their sums. Both depend on neighboring values, which histograms do not know, so a dump of whole
// tensors is judged (judge/operand_loss.h).
#include <algorithm>
#include <ostream>

#include "io/tensor_files/safetensors.h"
#include "io/text.h"
#include "judge/operand_loss.h"
#include "study/commands.h"
#include "study/output.h"
#include "study/text_table.h"
#include "study/what_if/dumped_matmuls.h"
#include "telemetry/block_figures.h"

namespace ada::study {
namespace {

using judge::MatmulTensors;
using judge::OperandRow;

void PrintOperands(std::vector<OperandRow> rows, std::ostream& out) {
  // Equal rows keep the order of the file.
  std::stable_sort(rows.begin(), rows.end(), telemetry::LosesMore);
  out << "operands, those that lose most first (lost: of the values other than zero,\n"
         "in %; satur.: values; SQNR and that of the worst block in dB; log2 of scales)\n";
  constexpr std::size_t kFormatWidth = 14;
  TextTable table({"layer", "operand", "format", "lost", "satur.", "SQNR", "worst", "scales"}, 3);
  for (const OperandRow& row : rows) {
    table.Row({row.layer, row.tensor, CutText(row.format, kFormatWidth),
               PctText(row.lost_pct_nonzero), std::to_string(row.saturated),
               telemetry::DecibelText(row.sqnr_db), telemetry::DecibelText(row.sqnr_worst_db),
               telemetry::ScalesText(row)});
  }
  table.Print(out, kTerminalWidth);
}

void PrintDumpSums(const std::vector<DumpSumsRow>& rows, std::ostream& out) {
  out << "sums (swallowed: of the products other than zero, in %; bias: mean signed error over "
         "the\n"
         "mean magnitude; max_rel: largest error over the sum of magnitudes; SQNR in dB)\n";
  TextTable table({"layer", "sum", "accumulator", "swallowed", "bias", "max_rel", "lost", "SQNR"},
                  3);
  for (const DumpSumsRow& row : rows)
    table.Row(
        {row.layer, row.tensor, row.accumulator + (row.format.empty() ? "" : ", " + row.format),
         PctText(row.swallowed_pct), Formatted("%.1e", row.bias), Formatted("%.1e", row.max_rel),
         std::to_string(row.lost), telemetry::DecibelText(row.sqnr_db)});
  table.Print(out, kTerminalWidth);
}

// The sums of a layer by each accumulator, of operands as they are stored or in each format.
std::vector<DumpSumsRow> SumsOf(const SafetensorsFile& file, const MatmulTensors& layer,
                                const WhatIfDumpOptions& options) {
  std::vector<DumpSumsRow> all;
  if (!layer.x || layer.transposed || !GlobMatch(options.tensors, layer.layer + ".dy")) return all;
  for (const config::AccumulatesConfig& accumulate : options.accumulators) {
    config::PrecisionConfig precision;
    precision.accumulate = accumulate;
    const auto judge = [&] {
      for (DumpSumsRow& row : JudgeSums(file, layer, precision)) all.push_back(std::move(row));
    };
    if (options.formats.empty()) judge();
    for (const AnyFormat& format : options.formats) {
      config::OperandConfig operand;
      operand.format = format;
      precision.operands.by_operand.fill(operand);
      judge();
    }
  }
  return all;
}

// What is written of each layer, as rows of one kind.
template <class Row, class RowsOf, class Print>
void WriteLayers(const SafetensorsFile& file, const WhatIfDumpOptions& options, std::ostream& out,
                 const RowsOf& rows_of, const Print& print) {
  const bool csv = options.view == View::kCsv, json = options.view == View::kJson;
  OrderedJson page = CommandJson(options.command);
  page[options.command == "inspect" ? "file" : "dump"] = options.dump;
  page["rows"] = OrderedJson::array();
  if (csv) PrintCsvHeader<Row>(out);
  std::vector<Row> all;
  EachDumpedMatmul(file, [&](const MatmulTensors& layer) {
    for (Row& row : rows_of(layer)) {
      if (csv) PrintCsvRow(row, out);
      if (json) page["rows"].push_back(RowJson(row));
      if (!csv && !json) all.push_back(std::move(row));
    }
  });
  if (json) PrintJson(page, out);
  if (!csv && !json) print(std::move(all), out);
}

}  // namespace

void WhatIfDump(const WhatIfDumpOptions& options, std::ostream& out) {
  const SafetensorsFile file = SafetensorsFile::Open(options.dump);
  if (!options.accumulators.empty()) {
    WriteLayers<DumpSumsRow>(
        file, options, out,
        [&](const MatmulTensors& layer) { return SumsOf(file, layer, options); }, PrintDumpSums);
    return;
  }
  WriteLayers<OperandRow>(
      file, options, out,
      [&](const MatmulTensors& layer) {
        std::vector<OperandRow> rows;
        for (const AnyFormat& format : options.formats)
          for (std::size_t i = 0; i < kOperands; ++i)
            if (auto row =
                    judge::JudgeOperand(layer, static_cast<Operand>(i), judge::PlainRule(format)))
              rows.push_back(std::move(*row));
        return rows;
      },
      PrintOperands);
}

}  // namespace ada::study
