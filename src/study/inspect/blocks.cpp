// What a block-scaled format keeps of a file's tensors.
#include <ostream>

#include "error.h"
#include "io/shown_text.h"
#include "io/text.h"
#include "study/convert/block_tensor.h"
#include "study/inspect/inspected.h"
#include "study/output.h"
#include "study/text_table.h"
#include "telemetry/block_figures.h"

namespace ada::study {
namespace {

using BlockOutput = InspectOptions::Output;

// A tensor of the view, with what it is ranked by.
struct BlockLine {
  const TensorEntry* entry = nullptr;
  BlockCountRow row;
};

// One tensor at a time is in memory; of the others only the figures stay.
BlockLine LineOf(const SafetensorsFile& file, const TensorEntry& entry, const BlockFormat& format,
                 std::optional<int> axis, double scale) {
  const BlockTensor tensor = ReadBlockTensor(file, entry, format, axis, 1);
  BlockCounts counts;
  QuantizeBlocks(format, tensor.layout, tensor.amax, tensor.bf16, tensor.values.data(), {},
                 &counts);
  BlockLine line;
  line.entry = &entry;
  line.row.Take(counts);
  line.row.tensor = entry.name, line.row.format = FormatName(format), line.row.scale = scale;
  return line;
}

// What the format is, in words, before what it keeps.
void PrintBlockFormat(const BlockFormat& format, std::ostream& out) {
  const std::string n = std::to_string(format.block);
  out << "format " << FormatName(format) << ":\n  "
      << (format.square ? "tiles of " + n + " x " : "blocks of ") << n
      << " values share a scale in " << ToString(format.scale) << " (rule " << ToString(format.rule)
      << ");\n"
      << (format.row_scaled ? "  each row has an fp32 scale as well;\n" : "") << "  elements of "
      << FormatName(format.element) << ", largest " << NineDigits(format.element.largest()) << '\n';
}

void PrintBlockTable(std::vector<BlockLine> lines, std::ostream& out) {
  std::stable_sort(lines.begin(), lines.end(), [](const BlockLine& a, const BlockLine& b) {
    return telemetry::LosesMore(a.row, b.row);
  });
  out << "\ntensors, those that lose most first (lost: of the values other than zero, in %;\n"
         "SQNR and that of the worst block in dB; log2 of scales)\n";
  TextTable table({"tensor", "lost", "saturated", "SQNR", "worst", "scales", "blocks", "values"});
  for (const BlockLine& line : lines) {
    const BlockCountRow& row = line.row;
    table.Row({row.tensor, PctText(row.lost_pct_nonzero), std::to_string(row.saturated),
               telemetry::DecibelText(row.sqnr_db), telemetry::DecibelText(row.sqnr_worst_db),
               telemetry::ScalesText(row), std::to_string(row.blocks), std::to_string(row.numel)});
  }
  table.Print(out);
}

// Every figure of one tensor.
void PrintBlockLine(const BlockLine& line, std::ostream& out) {
  const BlockCountRow& r = line.row;
  out << '\n'
      << Visible(r.tensor) << "  " << ShapeText(*line.entry) << "  " << r.numel << " values, scale "
      << ShortestText(r.scale) << '\n'
      << "  zeros " << r.zeros << "   inf " << r.inf << "   nan " << r.nan << "   saturated "
      << r.saturated << '\n'
      << "  lost " << r.lost << " (" << PercentWords(r.lost, r.numel - r.zeros)
      << " of non-zeros): beside the block's largest " << r.lost_beside_largest
      << ",\n    rounding of the scale " << r.lost_scale_rounding << ", floor of the scale "
      << r.lost_scale_floor << ", tensor scale " << r.lost_tensor_scale << '\n'
      << "  blocks " << r.blocks << "   zero " << r.zero_blocks << "   not finite "
      << r.broken_blocks << "   scale at its floor " << r.scale_floor << ", ceiling "
      << r.scale_ceiling << '\n'
      << "  scales, log2: " << telemetry::ScalesText(r) << ", mean "
      << telemetry::Log2Text(r.scale_log2_mean) << ", std " << telemetry::Log2Text(r.scale_log2_std)
      << '\n'
      << "  SQNR " << telemetry::DecibelText(r.sqnr_db) << " dB, mean of the blocks "
      << telemetry::DecibelText(r.sqnr_mean_db) << ", worst "
      << telemetry::DecibelText(r.sqnr_worst_db) << '\n';
}

}  // namespace

void CheckBlockOptions(const InspectOptions& options) {
  const std::string name = FormatName(options.format);
  if (!std::holds_alternative<BlockFormat>(options.format)) {
    if (options.axis)
      throw ConfigError("--axis: " + name +
                        " has no scales of blocks; expected a block-scaled --format");
    return;
  }
  if (options.output == BlockOutput::kScales)
    throw ConfigError("--csv scales: adaptive chooses scales for plain formats, and " + name +
                      " has scales of its own; expected --csv counts");
  // Refused rather than ignored: the user asked for something that is not shown.
  if (!options.overrides.empty())
    throw ConfigError("--set " + options.overrides.front().first +
                      ": changes what adaptive chooses, which is not shown for " + name +
                      "; leave it out");
}

void InspectBlocks(const SafetensorsFile& file, const InspectOptions& options,
                   const BlockFormat& format,
                   const std::function<double(const TensorEntry&)>& carried, std::ostream& out) {
  const bool csv = options.output == BlockOutput::kCounts;
  const bool all = options.output == BlockOutput::kAll;
  const bool json = options.output == BlockOutput::kJson;
  OrderedJson page = CommandJson("inspect");
  page["file"] = options.path;
  page["format"] = FormatName(format);
  page["tensors"] = OrderedJson::array();
  // CSV and --all are written as tensors are read; the table has to wait for all of them, to be
  // sorted.
  if (csv) PrintCsvHeader<BlockCountRow>(out);
  if (!csv && !json) PrintBlockFormat(format, out);
  std::vector<BlockLine> lines;
  std::vector<const TensorEntry*> skipped;
  const auto take = [&](const TensorEntry& entry) {
    const BlockLine line = LineOf(file, entry, format, options.axis, carried(entry));
    if (csv) PrintCsvRow(line.row, out);
    if (all) PrintBlockLine(line, out);
    if (json) page["tensors"].push_back(RowJson(line.row));
    if (!csv && !all && !json) lines.push_back(line);
  };
  EachShown(file, options, take, [&](const TensorEntry& entry) { skipped.push_back(&entry); });
  if (json) {
    page["scales"] = OrderedJson::array();  // adaptive chooses scales for plain formats alone
    page["notes"] = OrderedJson::array();
    return PrintJson(page, out);
  }
  if (csv) return;
  if (!all) PrintBlockTable(std::move(lines), out);
  for (const TensorEntry* entry : skipped) PrintSkipped(*entry, out);
  if (!all) out << "--all: why values are lost, and the spread of the scales\n";
}

}  // namespace ada::study
