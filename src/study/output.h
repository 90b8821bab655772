// What commands write alike: rows as CSV, or as JSON with the same names and values, numbers as
// numbers; what a run lost as JSON; pages.
#pragma once
#include <optional>
#include <ostream>
#include <string>
#include <type_traits>

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

// What was counted of a run and what that lost (telemetry/coverage.h): text, counted, not_counted,
// logged_steps, steps, and most: the tensor that lost most (null: none lost a value).
OrderedJson LostJson(const telemetry::LayerTotals& layers, const telemetry::Coverage& coverage);

// Pages hold HTML with SVG pictures within, which needs no other file and no script.
inline constexpr int kPageWidth = 860;  // of a picture
// Text of a name, which may come from a file, as HTML.
std::string Html(const std::string& text);
// The page up to its heading. Its style makes rows of class `taken` and paragraphs of class
// `verdict` stand out.
std::string PageHead(const std::string& title, const std::string& heading);
inline constexpr char kPageEnd[] = "</body></html>\n";

}  // namespace ada::study
