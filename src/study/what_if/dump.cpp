// what-if --dump: what formats would lose of the operands of a dump's products.
// Blocks depend on neighboring values, which histograms do not know, so a dump of whole tensors is
// judged (judge/operand_judge.h).
#include <algorithm>
#include <ostream>

#include "io/tensor_files/safetensors.h"
#include "judge/operand_judge.h"
#include "study/commands.h"
#include "study/row_json.h"
#include "study/text_table.h"
#include "study/what_if/dumped_matmuls.h"
#include "telemetry/block_figures.h"

namespace ada::study {
namespace {

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

}  // namespace

void WhatIfDump(const WhatIfDumpOptions& options, std::ostream& out) {
  const SafetensorsFile file = SafetensorsFile::Open(options.dump);
  const bool csv = options.view == View::kCsv, json = options.view == View::kJson;
  OrderedJson page = CommandJson("what-if");
  page["dump"] = options.dump;
  page["rows"] = OrderedJson::array();
  if (csv) out << telemetry::Header<OperandRow>() << '\n';
  std::vector<OperandRow> all;
  EachDumpedMatmul(file, [&](const judge::MatmulTensors& layer) {
    for (const AnyFormat& format : options.formats) {
      for (OperandRow& row : judge::JudgeOperands(layer, format)) {
        if (csv) out << telemetry::FieldsOf(row).text() << '\n';
        if (json) page["rows"].push_back(RowJson(row));
        if (!csv && !json) all.push_back(std::move(row));
      }
    }
  });
  if (json) return PrintJson(page, out);
  if (!csv) PrintOperands(std::move(all), out);
}

}  // namespace ada::study
