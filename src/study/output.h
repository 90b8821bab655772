// What commands write alike: rows as CSV, or as JSON with the same names and values, numbers as
// numbers; what a run lost as JSON; pictures and pages.
#pragma once
#include <optional>
#include <ostream>
#include <string>
#include <type_traits>
#include <vector>

#include "io/json_output.h"
#include "telemetry/columns.h"
#include "telemetry/coverage.h"

namespace ada::study {

template <class Row>
void PrintCsvRow(const Row& row, std::ostream& out) {
  out << telemetry::FieldsOf(row).text() << '\n';
}

template <class Row>
void PrintCsvHeader(std::ostream& out) {
  out << telemetry::Header<Row>() << '\n';
}

// All rows below their header.
template <class Row>
void PrintCsv(const std::vector<Row>& rows, std::ostream& out) {
  PrintCsvHeader<Row>(out);
  for (const Row& row : rows) PrintCsvRow(row, out);
}

// A number that is not there, or not finite, is null.
template <class Row>
OrderedJson RowJson(const Row& row) {
  OrderedJson json;
  for (const telemetry::Column<Row>& column : telemetry::kColumns<Row>) {
    OrderedJson& field = json[std::string(column.name)];
    std::visit(
        [&](auto member) {
          const auto& value = row.*member;
          if constexpr (std::is_same_v<std::remove_cvref_t<decltype(value)>, std::optional<double>>)
            field = value ? OrderedJson(*value) : OrderedJson();
          else
            field = value;
        },
        column.member);
  }
  return json;
}

template <class Row>
OrderedJson RowsJson(const std::vector<Row>& rows) {
  OrderedJson list = OrderedJson::array();
  for (const Row& row : rows) list.push_back(RowJson(row));
  return list;
}

// What was counted of a run and what that lost (telemetry/coverage.h): text, counted, not_counted,
// logged_steps, steps, and most: the tensor that lost most (null: none lost a value).
OrderedJson LostJson(const telemetry::LayerTotals& layers, const telemetry::Coverage& coverage);

// --- Pictures and pages ---

// Text of a name, which may come from a file, as HTML or XML.
std::string Html(const std::string& text);

// A place or length in a picture: a whole number, or one with a digit after its point.
struct SvgNumber {
  SvgNumber(int value);
  SvgNumber(double value);
  std::string text;
};
// Elements of a picture, each without a line end. title: what a viewer shows where it points at;
// more: other attributes.
std::string SvgRect(SvgNumber x, SvgNumber y, SvgNumber width, SvgNumber height,
                    const std::string& fill, const std::string& title = "",
                    const std::string& more = "");
// A gray area behind others.
std::string SvgBand(SvgNumber x, SvgNumber y, SvgNumber width, SvgNumber height,
                    const std::string& title = "");
std::string SvgLine(SvgNumber x1, SvgNumber y1, SvgNumber x2, SvgNumber y2,
                    const std::string& stroke);
// anchor: where of it the place is, "middle" or "end"; empty: its beginning.
std::string SvgText(SvgNumber x, SvgNumber y, const std::string& text,
                    const std::string& anchor = "");

// Pages hold HTML with SVG pictures within, which needs no other file and no script.
inline constexpr int kPageWidth = 860;  // of a picture
// The page up to its heading. Its style makes rows of class `taken` and paragraphs of class
// `verdict` stand out.
std::string PageHead(const std::string& title, const std::string& heading);
inline constexpr char kPageEnd[] = "</body></html>\n";

}  // namespace ada::study
