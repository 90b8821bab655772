// A row of a CSV table as a JSON object: the same names and values, numbers as numbers.
#pragma once
#include <optional>
#include <type_traits>

#include "io/json_output.h"
#include "telemetry/columns.h"

namespace ada::study {

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

}  // namespace ada::study
