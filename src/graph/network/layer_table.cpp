#include "graph/network/layer_table.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "core/error.h"

namespace ada::graph {
namespace {

constexpr int kColumns = 7;
using Row = std::array<std::string, kColumns>;

bool IsNumber(int column) { return column == 3 || column == 4; }

std::string Mflop(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f", value);
  return value == 0 ? "" : text;
}

std::string Count(std::int64_t value) { return value == 0 ? "" : std::to_string(value); }

std::string Line(const Row& row, const std::array<std::size_t, kColumns>& widths) {
  std::string line;
  for (int i = 0; i < kColumns; ++i) {
    const std::string space(widths[i] - row[i].size(), ' ');
    if (i > 0) line += "  ";
    line += IsNumber(i) ? space + row[i] : row[i] + space;
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

}  // namespace

std::vector<std::string> LayerTable(const std::vector<LayerRow>& layers,
                                    const std::vector<std::string>& policies) {
  ADA_CHECK(policies.empty() || policies.size() == layers.size());
  std::vector<Row> rows = {{"layer", "kind", "output", "parameters", "MFLOP", "format",
                            policies.empty() ? "" : "policy"}};
  std::int64_t parameters = 0;
  double mflop = 0;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const LayerRow& layer = layers[i];
    rows.push_back({layer.name, layer.kind, ToString(layer.output), Count(layer.parameters),
                    Mflop(layer.mflop), FormatName(layer.format),
                    policies.empty() ? "" : policies[i]});
    parameters += layer.parameters;
    mflop += layer.mflop;
  }
  rows.push_back({"total", "", "", Count(parameters), Mflop(mflop), "", ""});
  std::array<std::size_t, kColumns> widths{};
  for (const Row& row : rows) {
    for (int i = 0; i < kColumns; ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::vector<std::string> lines;
  for (const Row& row : rows) lines.push_back(Line(row, widths));
  return lines;
}

}  // namespace ada::graph
