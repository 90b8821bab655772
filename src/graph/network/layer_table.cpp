// Makes the cells of each row as texts, then pads them to their columns' widths.
#include "graph/network/layer_table.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "error.h"
#include "io/tensor_names.h"

namespace ada::graph {
namespace {

using Row = std::vector<std::string>;

// Columns in this order, whatever the order of the notes.
constexpr auto kTensors = std::to_array<const char*>(
    {"p",   "y",         "w",         "dy",    "dx",   "dx2",   "dv",    "ds",    "dq",  "dk",
     "dw",  "forward.x", "forward.w", "dx.dy", "dx.w", "dw.x",  "dw.dy", "s.q",   "s.k", "y.p",
     "y.v", "dv.p",      "dv.dy",     "dp.dy", "dp.v", "dq.ds", "dq.k",  "dk.ds", "dk.q"});
static_assert(kTensors.size() == 11 + kOperands + kAttentionOperands);

// Empty where a layer multiplies nothing, so that the eye finds the products.
std::string Mflop(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f", value);
  return value == 0 ? "" : text;
}

std::string Count(std::int64_t value) { return value == 0 ? "" : std::to_string(value); }

Row HeadRow() {
  Row row = {"layer", "kind", "output", "parameters", "MFLOP"};
  row.insert(row.end(), kTensors.begin(), kTensors.end());
  row.emplace_back("sums");
  row.emplace_back("policy");
  return row;
}

Row RowOf(const LayerRow& layer, const LayerNotes& notes) {
  Row row = {layer.name, layer.kind, ToString(layer.output), Count(layer.parameters),
             Mflop(layer.mflop)};
  for (const char* tensor : kTensors) {
    const auto found = std::find_if(notes.formats.begin(), notes.formats.end(),
                                    [&](const auto& format) { return format.first == tensor; });
    row.push_back(found == notes.formats.end() ? "" : FormatName(found->second));
  }
  row.push_back(notes.sums);
  row.push_back(notes.policy);
  return row;
}

bool IsNumber(std::size_t column) { return column == 3 || column == 4; }

// Numbers are right-aligned, texts left-aligned; spaces at the end are cut off.
std::string Line(const Row& row, const std::vector<std::size_t>& widths) {
  std::string line;
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (widths[i] == 0) continue;
    const std::string space(widths[i] - row[i].size(), ' ');
    if (i > 0) line += "  ";
    line += IsNumber(i) ? space + row[i] : row[i] + space;
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

// The widest cell below the head and the head itself; 0 where all cells are empty.
std::vector<std::size_t> WidthsOf(const Row& head, const std::vector<Row>& rows) {
  std::vector<std::size_t> widths(head.size(), 0);
  for (std::size_t i = 0; i < head.size(); ++i) {
    for (const Row& row : rows) widths[i] = std::max(widths[i], row[i].size());
    if (widths[i] > 0) widths[i] = std::max(widths[i], head[i].size());
  }
  return widths;
}

}  // namespace

std::vector<std::string> LayerTable(const std::vector<LayerRow>& layers,
                                    const std::vector<LayerNotes>& notes) {
  ADA_CHECK(notes.size() == layers.size());
  std::vector<Row> rows;
  std::int64_t parameters = 0;
  double mflop = 0;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    rows.push_back(RowOf(layers[i], notes[i]));
    parameters += layers[i].parameters;
    mflop += layers[i].mflop;
  }
  const Row head = HeadRow();
  Row total(head.size());
  total[0] = "total", total[3] = Count(parameters), total[4] = Mflop(mflop);
  rows.push_back(std::move(total));
  const std::vector<std::size_t> widths = WidthsOf(head, rows);
  std::vector<std::string> lines = {Line(head, widths)};
  for (const Row& row : rows) lines.push_back(Line(row, widths));
  return lines;
}

}  // namespace ada::graph
