// The table, CSV and JSON of a mismatch, and its picture.
#include <algorithm>
#include <cmath>
#include <ostream>

#include "io/json_output.h"
#include "io/shown_text.h"
#include "io/text.h"
#include "study/mismatch/mismatch.h"
#include "study/output.h"
#include "study/text_table.h"

namespace ada::study {
namespace {

constexpr std::size_t kMostShown = 8;  // positions of the table

std::string Three(double value) { return std::isnan(value) ? "-" : Formatted("%.3g", value); }

std::string Two(double value) { return Formatted("%.2g", value); }

void PrintFigures(const MismatchResult& result, std::ostream& out) {
  TextTable table({"figure", "value", "error", "floor"});
  for (const MismatchRow& row : result.rows)
    if (row.scope == "all")
      table.Row({row.figure,
                 row.figure == "agreement" ? Formatted("%.5f", row.value) : Three(row.value),
                 Three(row.error),
                 row.figure == "agreement" && !std::isnan(row.floor) ? Formatted("%.5f", row.floor)
                                                                     : Three(row.floor)});
  table.Print(out, kTerminalWidth);
}

// Some positions, evenly: all of them are in the CSV.
void PrintPositions(const MismatchResult& result, std::ostream& out) {
  std::vector<const MismatchRow*> means, distances;
  for (const MismatchRow& row : result.rows) {
    if (row.scope != "position") continue;
    if (row.figure == "kl_mean") means.push_back(&row);
    if (row.figure == "difference_abs_mean") distances.push_back(&row);
  }
  if (means.empty()) return;
  TextTable table({"position", "kl_mean", "error", "difference_abs_mean", "error"});
  const std::size_t shown = std::min(kMostShown, means.size());
  for (std::size_t i = 0; i < shown; ++i) {
    const std::size_t at = shown > 1 ? i * (means.size() - 1) / (shown - 1) : 0;
    table.Row({means[at]->name, Three(means[at]->value), Three(means[at]->error),
               Three(distances[at]->value), Three(distances[at]->error)});
  }
  table.Print(out, kTerminalWidth);
}

void PrintLayers(const MismatchResult& result, std::ostream& out) {
  if (result.layers.empty()) return;
  TextTable table({"layer", "adds a", "inherits a", "kl a", "adds b", "inherits b", "kl b"});
  for (const run::LayerMismatch& layer : result.layers)
    table.Row({layer.layer, Two(layer.adds[0]), Two(layer.inherits[0]), Two(layer.alone[0]),
               Two(layer.adds[1]), Two(layer.inherits[1]), Two(layer.alone[1])});
  table.Print(out);
}

OrderedJson MismatchJson(const MismatchResult& result) {
  OrderedJson json = CommandJson("mismatch");
  json["a"] = result.sides[0];
  json["b"] = result.sides[1];
  json["samples"] = result.samples;
  json["positions"] = result.positions;
  json["differences_of"] = result.differences_of;
  json["rows"] = RowsJson(result.rows);
  json["sentence"] = result.sentence;
  return json;
}

// A row of two bars for each item.
struct Bar {
  std::string name;
  double one = 0, other = 0;
};

}  // namespace

void PrintMismatch(const MismatchResult& result, View view, std::ostream& out) {
  if (view == View::kCsv) return PrintCsv(result.rows, out);
  if (view == View::kJson) return PrintJson(MismatchJson(result), out);
  PrintWrapped("a: " + Visible(result.sides[0]) + ", b: " + Visible(result.sides[1]) + "; " +
                   Counted(result.samples, "sample") + ", " +
                   Counted(result.positions, "position") +
                   "; error: the standard error over samples; floor: of equal precision, "
                   "weights moved by less than their format can tell",
               2, out);
  PrintFigures(result, out);
  PrintPositions(result, out);
  PrintLayers(result, out);
  out << '\n';
  PrintWrapped(Visible(result.sentence), 2, out);
}

std::string MismatchPicture(const MismatchResult& result) {
  constexpr int kNames = 190, kRow = 26, kRight = kPageWidth - 90;
  std::vector<Bar> bars;
  const bool of_layers = !result.layers.empty();
  for (const run::LayerMismatch& layer : result.layers)
    bars.push_back({layer.layer, std::max(layer.alone[0], 0.0), std::max(layer.alone[1], 0.0)});
  if (!of_layers)
    for (const MismatchRow& row : result.rows)
      if ((row.scope == "position" || row.scope == "all") && row.figure == "kl_mean")
        bars.push_back({row.scope == "all" ? "all" : "position " + row.name, row.value,
                        std::isnan(row.floor) ? 0 : row.floor});
  double most = 0;
  for (const Bar& bar : bars) most = std::max({most, bar.one, bar.other});
  if (most <= 0) most = 1;
  const std::string title =
      of_layers
          ? "KL divergence from fp32 that each layer makes alone, in nats: " + result.sides[0] +
                " (blue), " + result.sides[1] + " (orange)"
          : "KL divergence of " + result.sides[1] + " from " + result.sides[0] +
                ", in nats (blue), and of equal precision (orange)";
  const int height = 40 + kRow * static_cast<int>(bars.size());
  std::string svg =
      "<svg xmlns=\"http://www.w3.org/2000/svg\" font-family=\"sans-serif\" "
      "font-size=\"12\" " +
      Formatted("viewBox=\"0 0 %d %d\">\n", kPageWidth, height) +
      "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n" + SvgText(8, 20, title) + "\n";
  int y = 34;
  for (const Bar& bar : bars) {
    const double width = kRight - kNames;
    svg += SvgText(kNames - 8, y + 14, bar.name, "end") +
           SvgRect(kNames, y, width * bar.one / most, 10, "#0072b2") +
           SvgRect(kNames, y + 11, width * bar.other / most, 10, "#d55e00") +
           SvgText(kRight + 6, y + 14, Formatted("%.2g, %.2g", bar.one, bar.other)) + "\n";
    y += kRow;
  }
  return svg + "</svg>\n";
}

}  // namespace ada::study
