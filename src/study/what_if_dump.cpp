// what-if --dump: what formats would lose of the operands of a dump's products.
// Blocks depend on neighboring values, which histograms do not know, so a dump of whole tensors is
// judged (judge/operand_judge.h).
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <functional>
#include <numeric>
#include <ostream>

#include "config/load.h"
#include "error.h"
#include "io/file.h"
#include "io/shown_text.h"
#include "io/tensor_files/safetensors.h"
#include "io/text.h"
#include "judge/operand_judge.h"
#include "number/tensor.h"
#include "study/commands.h"
#include "study/row_json.h"
#include "study/run_files.h"
#include "study/text_table.h"
#include "study/what_if_sums.h"
#include "telemetry/block_figures.h"
#include "telemetry/run_folder.h"

namespace ada::study {
namespace {

using judge::MatmulTensors;
using judge::OperandRow;
using judge::StoredTensor;

// The number that the metadata have under `key`; 1 where they have none.
template <class Number>
Number MetadataNumber(const SafetensorsFile& file, const std::string& key) {
  const std::string text = file.MetadataOf(key);
  Number value = 1;
  if (text.empty()) return value;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  // A step that was skipped may have had a scale of 0, inf or NaN.
  const bool is_scale = std::is_floating_point_v<Number>,
             usable = is_scale ? !(value < 0) : value > 0;
  if (error != std::errc() || end != text.data() + text.size() || !usable)
    throw DataError(file.path() + ": metadata " + Shown(key) + ": expected a number, found " +
                    Shown(text));
  return value;
}

// The format that a tensor is kept in, by its type or by what a dump's metadata name: dumps are
// written in F32.
NumberFormat KeptFormatOf(const SafetensorsFile& file, const TensorEntry& entry) {
  if (entry.dtype == DType::kBF16) return kBf16;
  if (entry.dtype == DType::kF16) return kFp16;
  const std::string key = "format:" + entry.name, format = file.MetadataOf(key);
  if (format.empty()) return kFp32;
  try {
    return config::ReadFormat(format);
  } catch (const ConfigError&) {
    throw DataError(file.path() + ": metadata " + Shown(key) +
                    ": expected a format (`ada-train formats`), found " + Shown(format));
  }
}

// An empty tensor stands for one that the file lacks; its operands are not judged.
StoredTensor Stored(const SafetensorsFile& file, const std::string& name) {
  StoredTensor tensor;
  const TensorEntry* entry = file.Find(name);
  if (entry == nullptr || !IsFloat(entry->dtype)) return tensor;
  tensor.values = file.ReadF32(name);
  tensor.dims = entry->shape.empty() ? std::vector<std::int64_t>{1} : entry->shape;
  tensor.format = KeptFormatOf(file, *entry);
  tensor.bf16 = StorageFor(tensor.format) == Storage::kBF16;
  tensor.scale = MetadataNumber<double>(file, "scale:" + name);
  return tensor;
}

// The groups of a convolution: from the metadata, or from the shape of x (transposed: dy).
std::int64_t GroupsOf(const SafetensorsFile& file, const MatmulTensors& layer) {
  const std::string key = "groups:" + layer.layer;
  if (!file.MetadataOf(key).empty()) return MetadataNumber<std::int64_t>(file, key);
  const StoredTensor& grouped = layer.transposed ? layer.dy : layer.x;
  const bool known = grouped && grouped.dims.size() > 1 && layer.w.dims[1] > 0;
  return known ? std::max<std::int64_t>(1, grouped.dims[1] / layer.w.dims[1]) : 1;
}

// A layer by its NAME.w, of two axes or more.
MatmulTensors LayerOf(const SafetensorsFile& file, const std::string& name) {
  MatmulTensors layer;
  layer.layer = name;
  layer.w = Stored(file, name + ".w");
  layer.x = Stored(file, name + ".x");
  layer.dy = Stored(file, name + ".dy");
  // A linear layer takes an image as one row, or each of its tokens.
  const auto one_row = [](const StoredTensor& tensor, std::int64_t width) {
    if (!tensor || tensor.dims.size() < 2) return true;
    return std::accumulate(tensor.dims.begin() + 1, tensor.dims.end(), std::int64_t{1},
                           std::multiplies<>()) == width;
  };
  layer.linear = layer.w.dims.size() == 2 && one_row(layer.x, layer.w.dims[1]) &&
                 one_row(layer.dy, layer.w.dims[0]);
  layer.transposed = file.MetadataOf("kind:" + name) == "conv_transpose2d";
  if (!layer.linear) layer.groups = GroupsOf(file, layer);
  const std::string refusal = judge::RefuseShapes(layer);
  if (!refusal.empty()) throw DataError(file.path() + ": layer " + Shown(name) + ": " + refusal);
  return layer;
}

// The stride of a convolution, which a dump's metadata say ("2x1"), else from its shapes.
WindowSteps StepsOf(const SafetensorsFile& file, const MatmulTensors& layer) {
  WindowSteps steps;
  const std::string text = file.MetadataOf("stride:" + layer.layer);
  int height = 0, width = 0;
  if (std::sscanf(text.c_str(), "%dx%d", &height, &width) == 2 && height > 0 && width > 0) {
    steps.stride[0] = height, steps.stride[1] = width;
    return steps;
  }
  for (std::size_t i = 0; layer.dy && i < 2 && 2 + i < layer.dy.dims.size(); ++i) {
    const std::int64_t in = layer.x.dims[2 + i], out = layer.dy.dims[2 + i];
    steps.stride[i] = std::max<std::int64_t>(1, (in + out / 2) / out);
  }
  return steps;
}

// Whether the weight is multiplied, as far as a run's dump tells: an embedding has one as well.
bool IsMatmul(const SafetensorsFile& file, const std::string& layer) {
  const std::string kind = file.MetadataOf("kind:" + layer);
  return kind.empty() || kind == "linear" || kind == "conv2d" || kind == "conv_transpose2d";
}

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
  if (!layer.x || layer.transposed) return all;
  const WindowSteps steps = StepsOf(file, layer);
  for (const config::AccumulatesConfig& accumulate : options.accumulators) {
    config::PrecisionConfig precision;
    precision.accumulate = accumulate;
    const auto judge = [&] {
      for (DumpSumsRow& row : JudgeSums(layer, steps, precision)) all.push_back(std::move(row));
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
  OrderedJson page = CommandJson("what-if");
  page["dump"] = options.dump;
  page["rows"] = OrderedJson::array();
  if (csv) out << telemetry::Header<Row>() << '\n';
  std::vector<Row> all;
  std::size_t layers = 0;
  for (const TensorEntry& entry : file.entries()) {
    if (!entry.name.ends_with(".w") || !IsFloat(entry.dtype) || entry.shape.size() < 2) continue;
    const std::string name = entry.name.substr(0, entry.name.size() - 2);
    if (!IsMatmul(file, name)) continue;
    ++layers;
    for (Row& row : rows_of(LayerOf(file, name))) {
      if (csv) out << telemetry::FieldsOf(row).text() << '\n';
      if (json) page["rows"].push_back(RowJson(row));
      if (!csv && !json) all.push_back(std::move(row));
    }
  }
  if (layers == 0)
    throw DataError(options.dump +
                    ": has no weights NAME.w of a linear layer or convolution; expected a dump of "
                    "log.dump, or tensors NAME.x, NAME.w and NAME.dy");
  if (json) PrintJson(page, out);
  if (!csv && !json) print(std::move(all), out);
}

}  // namespace

std::string NewestDump(const std::string& folder) {
  RequireRun(folder);
  std::vector<std::string> names;
  TryListFolder(folder + "/dump", &names);
  std::string newest;
  for (const std::string& name : names)
    // Steps have leading zeros in the names, so the largest name is the newest.
    if (telemetry::IsDump(name)) newest = std::max(newest, folder + "/dump/" + name);
  if (newest.empty())
    throw DataError(folder +
                    ": has no dump, and histograms do not know the blocks of a format; run again "
                    "with log.dump_every, or with the formats in log.what_if");
  return newest;
}

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
          for (OperandRow& row : judge::JudgeOperands(layer, format))
            rows.push_back(std::move(row));
        return rows;
      },
      PrintOperands);
}

}  // namespace ada::study
